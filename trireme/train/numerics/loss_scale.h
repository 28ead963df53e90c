// Dynamic loss scaling: fp16 gradients are computed from a scaled loss, so that small ones do not
// become zero. The scale grows until something overflows. Never communicates: the norm it is given
// is the same on all ranks, and so are its decisions.
// Source: Micikevicius et al. 2018, arXiv:1710.03740, section 3.2
#pragma once

#include <cstdint>

namespace trireme::train {

struct LossScaleOptions {
  double initial = 65536;
  int64_t growth_interval = 1000;  // steps without overflow before it doubles
};

class LossScale {
 public:
  static constexpr double kLargest = 16777216;  // 2^24

  // Without options: the scale is always 1 and never skips.
  LossScale() = default;
  explicit LossScale(const LossScaleOptions& options)
      : scale_(options.initial), growth_interval_(options.growth_interval) {}

  double scale() const { return scale_; }
  int64_t good_steps() const { return good_steps_; }  // since it last changed
  void restore(double scale, int64_t good_steps) {
    scale_ = scale;
    good_steps_ = good_steps;
  }

  // Call after a step's gradients. Returns whether to update. Overflow halves the scale, down to 1.
  // growth_interval good steps double it.
  bool update(bool finite);
  // Whether the scale may have caused the overflow, so that the next step may be fine.
  bool may_retry() const { return growth_interval_ > 0 && scale_ > 1; }

 private:
  double scale_ = 1;
  int64_t growth_interval_ = 0;  // 0: fixed
  int64_t good_steps_ = 0;
};

}  // namespace trireme::train
