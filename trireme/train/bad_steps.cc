#include "trireme/train/bad_steps.h"

#include <algorithm>
#include <cmath>

namespace trireme::train {
namespace {

constexpr int64_t kMemory = 50;  // steps that the running mean remembers
constexpr int64_t kFirst = 10;   // good steps before a norm can be a spike

}  // namespace

bool BadSteps::accept(double loss, double grad_norm) {
  if (!std::isfinite(loss) || !std::isfinite(grad_norm)) return false;
  if (options_.spike_factor > 0 && num_good_ >= kFirst &&
      grad_norm > options_.spike_factor * mean_norm_) {
    return false;
  }
  ++num_good_;
  num_skipped_ = 0;
  mean_norm_ += (grad_norm - mean_norm_) / static_cast<double>(std::min(num_good_, kMemory));
  return true;
}

bool BadSteps::may_skip() { return ++num_skipped_ <= options_.max_skipped; }

}  // namespace trireme::train
