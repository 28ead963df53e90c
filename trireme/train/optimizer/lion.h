// Lion: the step is the sign of an average of gradient and momentum, so every weight moves by the
// learning rate. Needs a rate about ten times smaller than AdamW's, and ten times its decay.
#pragma once

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train::inline internal {

// State: exp_avg, like the parameter.
// Source: Chen et al. 2023, arXiv:2302.06675, algorithm 2
class LionRule : public UpdateRule {
 public:
  LionRule(double beta1, double beta2) : beta1_(beta1), beta2_(beta2) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return false; }

 private:
  double beta1_;
  double beta2_;
};

}  // namespace trireme::train::inline internal
