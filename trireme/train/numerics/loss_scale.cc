#include "trireme/train/numerics/loss_scale.h"

#include <algorithm>

namespace trireme::train {
namespace {

constexpr double kFactor = 2;

}  // namespace

bool LossScale::update(bool finite) {
  if (growth_interval_ == 0) return finite;
  if (!finite) {
    scale_ = std::max(1.0, scale_ / kFactor);
    good_steps_ = 0;
    return false;
  }
  if (++good_steps_ >= growth_interval_) {
    scale_ = std::min(kLargest, scale_ * kFactor);
    good_steps_ = 0;
  }
  return true;
}

}  // namespace trireme::train
