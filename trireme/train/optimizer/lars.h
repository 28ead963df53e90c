// LARS: SGD with momentum whose rate follows, per layer, the norm of the weights over that of the
// gradient. For convolutional networks on very large batches.
#pragma once

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train::inline internal {

// State: momentum_buffer, like the parameter; it holds steps, including the learning rate.
//   buffer = momentum * buffer + rate * ratio * (gradient + decay * weights);  weights -= buffer
//   ratio = 0.001 * |weights| / (|gradient| + decay * |weights|), 1 for 0 / x and x / 0
// Source: You et al. 2017, arXiv:1708.03888, algorithm 1, trust coefficient 0.001
class LarsRule : public UpdateRule {
 public:
  explicit LarsRule(double momentum) : momentum_(momentum) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return true; }

 private:
  double momentum_;
};

}  // namespace trireme::train::inline internal
