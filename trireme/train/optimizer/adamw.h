// AdamW: the step is the first moment over the root of the second. Weight decay is separate.
#pragma once

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train::inline internal {

// States: exp_avg, exp_avg_sq, like the parameter.
// Source: Kingma & Ba 2015, arXiv:1412.6980; Loshchilov & Hutter 2019, arXiv:1711.05101
class AdamWRule : public UpdateRule {
 public:
  AdamWRule(double beta1, double beta2, double epsilon)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return false; }

 private:
  double beta1_;
  double beta2_;
  double epsilon_;
};

}  // namespace trireme::train::inline internal
