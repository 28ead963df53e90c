// Adafactor: estimates the second moment of a matrix from the means of its rows and columns, so the
// state of an [R, C] matrix is R + C numbers. No first moment.
#pragma once

#include "trireme/train/optimizer/update_rule.h"

namespace trireme::train::inline internal {

// States of a parameter with two or more dimensions, factored over the last two: row_var [..., R,
// 1] and col_var [..., 1, C], on the parameter's owner. State of a vector: variance, like the
// parameter. As in torch's Adafactor, decay is 1 - step^-0.8, updates are clipped at a root mean
// square of d = 1, and steps are relative to the root mean square of the weights. Unlike in torch,
// the given learning rate is used unchanged at every step, and not bounded by 1 / sqrt(step).
// Source: Shazeer & Stern 2018, arXiv:1804.04235, algorithms 4 and 5
class AdafactorRule : public UpdateRule {
 public:
  // Throws: InternalError when this rank has only a part of the parameter, neither all nor nothing
  std::vector<StateSpec> state_of(const parallel::Shard& shard) const override;
  void update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const override;
  bool needs_whole_parameters() const override { return true; }
};

}  // namespace trireme::train::inline internal
