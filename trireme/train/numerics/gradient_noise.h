// The gradient noise scale: how large a batch still pays. Below it, twice the batch nearly halves
// the steps; above it, more data a step changes little. Arithmetic on norms: it never communicates.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme::train {

// Squared norms of a step's mean gradient over `batch` examples (or sequences, or tokens: the
// answer is in the same unit).
struct GradientMeasure {
  double batch = 0;
  double squared_norm = 0;
};

// Source: McCandlish et al. 2018, arXiv:1812.06162, section 2.2 and appendix A.1
class GradientNoise {
 public:
  // decay: of the averages over steps, below 1; 0.99 remembers about 100 steps.
  explicit GradientNoise(double decay = 0.99);

  // small: gradients of ranks or microbatches, the mean of their squared norms; large: the step's.
  // Throws: InternalError unless 0 < small.batch < large.batch
  void add(const GradientMeasure& small, const GradientMeasure& large);

  // Estimates without bias, averaged over the steps so far; 0 before the first. One step's estimate
  // is noisy and may be negative.
  double squared_gradient() const;  // |G|^2 of the true gradient
  double trace() const;             // tr(Sigma): of one example's gradient, the summed variances

  // B_simple = tr(Sigma) / |G|^2; none while the estimates are not both above 0.
  std::optional<double> batch() const;

  // What a checkpoint keeps: averages that start at 0, and the weight of all steps in them.
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
