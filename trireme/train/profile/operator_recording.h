// libtorch's operators and GPU kernels as spans: libtorch's own profiler (Kineto), switched on and
// off. Other threads and ranks of the process are not seen.
#pragma once

#include <vector>

#include "trireme/train/profile/spans.h"

namespace trireme::train {

// One at a time in a process. Thread safety: start() and stop() in the thread whose operators are
// recorded; of other threads those are seen that autograd runs for it.
class OperatorRecording {
 public:
  OperatorRecording() = default;
  ~OperatorRecording();  // stops, and forgets
  OperatorRecording(const OperatorRecording&) = delete;
  OperatorRecording& operator=(const OperatorRecording&) = delete;

  // Throws: c10::Error when the process is being profiled already
  void start();
  bool is_running() const { return is_running_; }
  // Everything since start(), on this process's monotonic clock.
  std::vector<OperatorSpan> stop();

 private:
  bool is_running_ = false;
};

}  // namespace trireme::train
