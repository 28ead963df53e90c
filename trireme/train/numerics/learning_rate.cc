#include "trireme/train/numerics/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// The part of the steps from `begin` to the one after `last` that lies before `step`, from 0 to 1.
double progress(int64_t step, int64_t begin, int64_t last) {
  if (last < begin) return 0.0;  // the run ends before
  return std::clamp(static_cast<double>(step - begin) / static_cast<double>(last + 1 - begin), 0.0,
                    1.0);
}

}  // namespace

double learning_rate(const LearningRateOptions& options, int64_t step, int64_t num_steps) {
  const double peak = options.peak;
  const double fall = peak - options.minimum;
  const int64_t warmup = std::max<int64_t>(1, options.warmup_steps);
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

double scaled_learning_rate(double rate, BatchScaling scaling, int64_t batch, int64_t base_batch) {
  const double ratio = static_cast<double>(batch) / static_cast<double>(base_batch);
  switch (scaling) {
    case BatchScaling::kNone: return rate;
    case BatchScaling::kLinear: return rate * ratio;
    case BatchScaling::kSquareRoot: return rate * std::sqrt(ratio);
  }
  throw InternalError("unknown BatchScaling");
}

}  // namespace trireme::train
