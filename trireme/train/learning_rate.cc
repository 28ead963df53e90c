#include "trireme/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// How far [begin, end] has passed at `step`, from 0 to 1.
double progress(int64_t step, int64_t begin, int64_t end) {
  if (end <= begin) return 0.0;  // a run ends at `end`
  return std::clamp(static_cast<double>(step - begin) / static_cast<double>(end - begin), 0.0, 1.0);
}

}  // namespace

double learning_rate(const OptimizerConfig& config, int64_t step, int64_t num_steps) {
  const double peak = config.learning_rate;
  const double fall = peak - config.minimum_learning_rate;
  const int64_t warmup = config.warmup_steps;
  if (step < warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  if (config.schedule == "constant") return peak;
  if (config.schedule == "linear") return peak - fall * progress(step, warmup, num_steps);
  if (config.schedule == "cosine") {
    const double angle = std::numbers::pi * progress(step, warmup, num_steps);
    return peak - fall * 0.5 * (1.0 - std::cos(angle));
  }
  if (config.schedule == "warmup-stable-decay") {
    const auto decay_steps = std::llround(config.decay_fraction * static_cast<double>(num_steps));
    return peak -
           fall * progress(step, std::max<int64_t>(warmup, num_steps - decay_steps), num_steps);
  }
  throw InternalError("schedule " + config.schedule);
}

}  // namespace trireme::train
