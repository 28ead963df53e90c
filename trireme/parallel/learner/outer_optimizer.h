// The optimizer of learners: changes the weights that all learners have in common by the mean of
// what each has changed since. Never communicates.
#pragma once

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

struct OuterOptimizerOptions {
  double learning_rate = 1;  // 1 without momentum: the mean of the learners' weights
  double momentum = 0;
  bool nesterov = false;
};

// One update in place. Each element is rounded after each operation, so its bits do not depend on
// where it lies in the tensor. Learners with the same anchor and difference get the same bits.
// anchor:     [n] fp32 or fp64, the common weights
// momentum:   [n], the same dtype; undefined without momentum
// difference: [n], the mean over learners of anchor - weights; it is overwritten
// Source:     Douillard et al. 2023, arXiv:2311.08105 (DiLoCo), algorithm 1; the momentum is
//             torch.optim.SGD's
void outer_step(const at::Tensor& anchor, const at::Tensor& momentum, const at::Tensor& difference,
                const OuterOptimizerOptions& options);

// weights = anchor + share * (weights - anchor), in place: a learner keeps that share of what it
// has done since a delayed sum began. 0 copies the anchor's bits.
// Source: Douillard et al. 2025, arXiv:2501.18512 (Streaming DiLoCo), section 2.2
void mix_with_anchor(const at::Tensor& weights, const at::Tensor& anchor, double share);

}  // namespace trireme::parallel
