// LAMB: AdamW's step, scaled per layer to the norm of the weights. For very large batches.
#pragma once

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train::inline internal {

// States: exp_avg, exp_avg_sq, like the parameter. With r the Adam step plus decay times weights,
// weights -= rate * |weights| / |r| * r. The ratio is 1 if a norm is 0.
// Source: You et al. 2020, arXiv:1904.00962, algorithm 2, with phi(z) = z
class LambRule : public UpdateRule {
 public:
  LambRule(double beta1, double beta2, double epsilon)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return true; }

 private:
  // The Adam step of `item`, without the learning rate. Updates its moments.
  at::Tensor adam_step(const UpdateItem& item, int64_t step) const;

  double beta1_;
  double beta2_;
  double epsilon_;
};

}  // namespace trireme::train::inline internal
