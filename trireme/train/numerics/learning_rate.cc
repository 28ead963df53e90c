#include "trireme/train/numerics/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// The part of [begin, end] that lies before `step`, from 0 to 1.
double progress(int64_t step, int64_t begin, int64_t end) {
  if (end <= begin) return 0.0;  // a run ends at `end`
  return std::clamp(static_cast<double>(step - begin) / static_cast<double>(end - begin), 0.0, 1.0);
}

}  // namespace

double learning_rate(const LearningRateOptions& options, int64_t step, int64_t num_steps) {
  const double peak = options.peak;
  const double fall = peak - options.minimum;
  const int64_t warmup = options.warmup_steps;
  if (step < warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  switch (options.schedule) {
    case RateSchedule::kConstant: return peak;
    case RateSchedule::kLinear: return peak - fall * progress(step, warmup, num_steps);
    case RateSchedule::kCosine: {
      const double angle = std::numbers::pi * progress(step, warmup, num_steps);
      return peak - fall * 0.5 * (1.0 - std::cos(angle));
    }
    case RateSchedule::kWarmupStableDecay: {
      const auto decay_steps =
          std::llround(options.decay_fraction * static_cast<double>(num_steps));
      return peak -
             fall * progress(step, std::max<int64_t>(warmup, num_steps - decay_steps), num_steps);
    }
  }
  throw InternalError("unknown RateSchedule");
}

}  // namespace trireme::train
