#include "trireme/launch/watchdog/step_windows.h"

#include <algorithm>

#include "trireme/base/median.h"

namespace trireme::launch::inline internal {
namespace {

std::chrono::nanoseconds median_of(const std::vector<std::chrono::nanoseconds>& times) {
  std::vector<int64_t> counts;
  for (const auto time : times) counts.push_back(time.count());
  return std::chrono::nanoseconds(median(std::move(counts)));
}

}  // namespace

void StepWindows::add(int64_t step, std::chrono::nanoseconds computing,
                      std::chrono::nanoseconds waiting) {
  if (step < 1) return;
  // Steps may be missing: a ring holds some thousand calls, and a poll may come late.
  if (step <= last_step_ || step > last_step_ + kWindowSteps) {
    complete_.clear();
    computing_.clear();
    waiting_.clear();
  }
  const int64_t first_of_last = (last_step_ - 1) / kWindowSteps * kWindowSteps + 1;
  const int64_t first = (step - 1) / kWindowSteps * kWindowSteps + 1;
  if (first != first_of_last && !computing_.empty()) {
    // Half a window has a sound median; less of it is thrown away.
    if (2 * std::ssize(computing_) >= kWindowSteps) {
      complete_.push_back({first_of_last, median_of(computing_), median_of(waiting_)});
    } else {
      complete_.clear();
    }
    computing_.clear();
    waiting_.clear();
  }
  computing_.push_back(computing);
  waiting_.push_back(waiting);
  last_step_ = step;
  if (complete_.size() > kMaxWindows) complete_.erase(complete_.begin());
}

}  // namespace trireme::launch::inline internal
