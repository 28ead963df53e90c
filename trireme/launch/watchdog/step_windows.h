// Sorts one rank's steps into windows and keeps the medians of the latest complete ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "trireme/launch/watchdog/observation.h"

namespace trireme::launch::inline internal {

class StepWindows {
 public:
  // Adds a finished step. A step that does not follow the last one begins anew: a run that went
  // back to a checkpoint repeats its steps.
  void add(int64_t step, std::chrono::nanoseconds computing, std::chrono::nanoseconds waiting);
  const std::vector<StepWindow>& complete() const { return complete_; }

 private:
  int64_t last_step_ = 0;
  std::vector<std::chrono::nanoseconds> computing_, waiting_;  // of the window under way
  std::vector<StepWindow> complete_;
};

}  // namespace trireme::launch::inline internal
