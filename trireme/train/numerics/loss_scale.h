// Dynamic loss scaling: fp16 gradients are computed of a loss times a scale, so that small ones do
// not become zero; the scale grows until something overflows. Communicates nothing: the norm it is
// told of is the same on all ranks, and so is its decision.
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

  // Without options: always 1, never skips.
  LossScale() = default;
  explicit LossScale(const LossScaleOptions& options)
      : scale_(options.initial), growth_interval_(options.growth_interval) {}

  double scale() const { return scale_; }
  int64_t good_steps() const { return good_steps_; }  // since it last changed
  void restore(double scale, int64_t good_steps) {
    scale_ = scale;
    good_steps_ = good_steps;
  }

  // After a step's gradients: whether to update. When they overflowed the scale is halved, down to
  // 1; after growth_interval good steps it is doubled.
  bool update(bool finite);
  // Whether the overflow may be the scale's doing, so that the next step may be fine.
  bool may_retry() const { return growth_interval_ > 0 && scale_ > 1; }

 private:
  double scale_ = 1;
  int64_t growth_interval_ = 0;  // 0: fixed
  int64_t good_steps_ = 0;
};

}  // namespace trireme::train
