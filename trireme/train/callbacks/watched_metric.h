// A metric that a callback compares from one evaluation to the next.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/choice.h"

namespace trireme::train::inline internal {

enum class Goal { kSmallest, kLargest };
inline constexpr Choice<Goal> kGoals[] = {{"smallest", Goal::kSmallest},
                                          {"largest", Goal::kLargest}};

// The best value so far.
class BestValue {
 public:
  // Whether `value` is better than the best by more than `change`; then it becomes the best. A NaN
  // never is.
  bool improve(double value, Goal goal, double change = 0) {
    if (std::isnan(value)) return false;
    const double gain = goal == Goal::kSmallest ? best_ - value : value - best_;
    if (is_set() && !(gain > change)) return false;
    best_ = value;
    return true;
  }
  bool is_set() const { return !std::isnan(best_); }
  double value() const { return best_; }  // NaN before the first
  void restore(double value) { best_ = value; }

 private:
  double best_ = std::numeric_limits<double>::quiet_NaN();
};

// Throws: ConfigError when evaluations have no metric of that name, with the nearest one; `key` is
//         the config key that names it
void check_watched(std::string_view key, const std::string& metric,
                   std::span<const std::string> metrics);

}  // namespace trireme::train::inline internal
