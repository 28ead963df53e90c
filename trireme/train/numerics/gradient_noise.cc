#include "trireme/train/numerics/gradient_noise.h"

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
  state_.squared_gradient = decay_ * state_.squared_gradient + (1 - decay_) * squared_gradient;
  state_.trace = decay_ * state_.trace + (1 - decay_) * trace;
  state_.weight = decay_ * state_.weight + (1 - decay_);
}

double GradientNoise::corrected(double average) const {
  return state_.weight == 0 ? 0 : average / state_.weight;
}

double GradientNoise::squared_gradient() const { return corrected(state_.squared_gradient); }

double GradientNoise::trace() const { return corrected(state_.trace); }

std::optional<double> GradientNoise::batch() const {
  if (state_.squared_gradient <= 0 || state_.trace <= 0) return std::nullopt;
  return state_.trace / state_.squared_gradient;
}

}  // namespace trireme::train
