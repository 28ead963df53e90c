// Records one step of a training loop: its number, how long it took, and how much of that this rank
// waited for others. The watchdog (launch/watchdog) tells from it who is slow.
#pragma once

#include <chrono>
#include <cstdint>

#include "trireme/comm/recorder/recorder.h"

namespace trireme::comm {

// The step begins with this object and has failed if that ends without finish(). One ring entry,
// under 100 ns. A null recorder records nothing.
class StepRecording {
 public:
  // step: from 1
  StepRecording(Recorder* recorder, int64_t step) {
    if (recorder != nullptr) entry_ = recorder->issue(-1, {.operation = "step", .step = step});
  }
  ~StepRecording() {
    if (!is_finished_) entry_.finish(false);
  }
  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

  // waiting: of the step's time, what this rank waited for communication.
  void finish(std::chrono::nanoseconds waiting) {
    entry_.finish_step(waiting);
    is_finished_ = true;
  }

 private:
  Recorder::Entry entry_;
  bool is_finished_ = false;
};

}  // namespace trireme::comm
