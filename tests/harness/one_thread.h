// One compute thread per rank, for tests whose ranks are threads of one process.
#pragma once

#include <ATen/Parallel.h>

namespace trireme::harness {

// While it lives. Ranks that start meanwhile have one too.
class OneThread {
 public:
  OneThread() : before_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace trireme::harness
