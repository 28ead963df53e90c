// Stochastic gradient descent with momentum. The decay is part of the gradient, as in torch's SGD.
#pragma once

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train::inline internal {

// State: momentum_buffer, like the parameter; none if momentum is 0.
// Source: Polyak 1964; Nesterov 1983; in this form Sutskever et al. 2013, "On the importance of
//         initialization and momentum in deep learning"
class SgdRule : public UpdateRule {
 public:
  SgdRule(double momentum, bool nesterov) : momentum_(momentum), nesterov_(nesterov) {}

  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return false; }

 private:
  double momentum_;
  bool nesterov_;
};

}  // namespace trireme::train::inline internal
