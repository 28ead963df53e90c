// The gradient noise scale: the batch size up to which a larger batch pays. Below it, twice the
// batch nearly halves the number of steps; above it, more data per step changes little. Pure
// arithmetic on norms; never communicates.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::train {

// The squared norm of a mean gradient over `batch` examples. They may also be sequences or tokens;
// batch() then has the same unit.
struct GradientMeasure {
  double batch = 0;
  double squared_norm = 0;
};

// Source: McCandlish et al. 2018, arXiv:1812.06162, section 2.2 and appendix A.1
class GradientNoise {
 public:
  // decay of the averages over steps, below 1; 0.99 remembers about 100 steps.
  explicit GradientNoise(double decay = 0.99);

  // small: the mean squared norm of the gradients of ranks or microbatches. large: that of the
  // step.
  // Throws: InternalError unless 0 < small.batch < large.batch
  void add(const GradientMeasure& small, const GradientMeasure& large);

  // Unbiased estimates, averaged over the steps so far; 0 before the first. The estimate of a
  // single step is noisy and may be negative.
  double squared_gradient() const;  // |G|^2 of the true gradient
  double trace() const;             // tr(Sigma): summed variances of one example's gradient

  // B_simple = tr(Sigma) / |G|^2. Empty unless both estimates are above 0.
  std::optional<double> batch() const;

  // The state for checkpoints: averages that start at 0, and the weight of all steps in them.
  struct State {
    double squared_gradient = 0;
    double trace = 0;
    double weight = 0;
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  double corrected(double average) const;

  double decay_;
  State state_;
};

}  // namespace trireme::train
