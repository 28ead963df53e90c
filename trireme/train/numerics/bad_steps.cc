#include "trireme/train/numerics/bad_steps.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

constexpr int64_t kMemory = 50;  // steps that the running mean remembers
constexpr int64_t kFirst = 10;   // good steps before a norm can be a spike

}  // namespace

bool BadSteps::is_spike(double grad_norm) const {
  return options_.spike_factor > 0 && state_.num_good >= kFirst &&
         grad_norm > options_.spike_factor * state_.mean_norm;
}

bool BadSteps::accept(double loss, double grad_norm) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm) || is_spike(grad_norm)) return false;
  ++state_.num_good;
  state_.num_skipped = 0;
  state_.mean_norm +=
      (grad_norm - state_.mean_norm) / static_cast<double>(std::min(state_.num_good, kMemory));
  return true;
}

bool BadSteps::may_skip() {
  if (state_.num_skipped >= options_.max_skipped) return false;
  ++state_.num_skipped;
  return true;
}

std::string BadSteps::describe(double loss, double grad_norm) const {
  // The sign of a NaN means nothing.
  const auto shown = [](double value) {
    return std::isnan(value) ? std::string("nan") : concat(value);
  };
  std::string text = concat("loss is ", shown(loss), " and gradient norm is ", shown(grad_norm));
  const bool is_finite = std::isfinite(loss) && std::isfinite(grad_norm);
  if (is_finite) {
    text += concat(", above train.spike_factor ", options_.spike_factor, " times its mean ",
                   state_.mean_norm);
  }
  if (state_.num_skipped > 0) text += concat(", after ", state_.num_skipped, " skipped steps");
  return text;
}

}  // namespace trireme::train
