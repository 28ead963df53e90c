#include "trireme/train/optimizer/gradient_noise.h"

#include "trireme/base/error.h"

namespace trireme::train {

GradientNoise::GradientNoise(double decay) : decay_(decay) {
  TRIREME_ASSERT(decay >= 0 && decay < 1, "decay ", decay);
}

// E|mean gradient over B|^2 = |G|^2 + tr(Sigma) / B: two batch sizes give two equations.
void GradientNoise::add(const GradientMeasure& small, const GradientMeasure& large) {
  TRIREME_ASSERT(small.batch > 0 && small.batch < large.batch, "batches ", small.batch, " and ",
                 large.batch);
  const double squared_gradient =
      (large.batch * large.squared_norm - small.batch * small.squared_norm) /
      (large.batch - small.batch);
  const double trace =
      (small.squared_norm - large.squared_norm) / (1 / small.batch - 1 / large.batch);
  squared_gradient_ = decay_ * squared_gradient_ + (1 - decay_) * squared_gradient;
  trace_ = decay_ * trace_ + (1 - decay_) * trace;
  weight_ = decay_ * weight_ + (1 - decay_);
}

double GradientNoise::corrected(double average) const {
  return weight_ == 0 ? 0 : average / weight_;
}

double GradientNoise::squared_gradient() const { return corrected(squared_gradient_); }

double GradientNoise::trace() const { return corrected(trace_); }

std::optional<double> GradientNoise::batch() const {
  if (squared_gradient_ <= 0 || trace_ <= 0) return std::nullopt;
  return trace_ / squared_gradient_;
}

}  // namespace trireme::train
