// Records libtorch's operators and GPU kernels as spans, by switching libtorch's profiler (Kineto)
// on and off. Does not see other threads and ranks of the process.
#pragma once

#include <vector>

#include "trireme/train/profile/spans.h"

namespace trireme::train::inline internal {

// One at a time per process. Thread safety: call start() and stop() in the thread whose operators
// are recorded. Of other threads, only those that autograd runs for it are seen.
class OperatorRecording {
 public:
  OperatorRecording() = default;
  ~OperatorRecording();  // stops and discards
  OperatorRecording(const OperatorRecording&) = delete;
  OperatorRecording& operator=(const OperatorRecording&) = delete;

  // Throws: c10::Error when the process is already being profiled
  void start();
  bool is_running() const { return is_running_; }
  // Everything since start(), on this process's monotonic clock.
  std::vector<OperatorSpan> stop();

 private:
  bool is_running_ = false;
};

}  // namespace trireme::train::inline internal
