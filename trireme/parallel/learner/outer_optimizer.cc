#include "trireme/parallel/learner/outer_optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace trireme::parallel {

// add_(x, alpha) may fuse the product into the sum for some elements of a tensor and not for
// others, so products are tensors of their own here.

void outer_step(const at::Tensor& anchor, const at::Tensor& momentum, const at::Tensor& difference,
                const OuterOptimizerOptions& options) {
  const c10::NoGradGuard no_grad;
  if (options.momentum != 0) {
    momentum.mul_(options.momentum).add_(difference);
    if (options.nesterov) {
      difference.add_(momentum * options.momentum);
    } else {
      difference.copy_(momentum);
    }
  }
  if (options.learning_rate != 1) difference.mul_(options.learning_rate);
  anchor.sub_(difference);
}

void mix_with_anchor(const at::Tensor& weights, const at::Tensor& anchor, double share) {
  const c10::NoGradGuard no_grad;
  if (share == 0) {
    weights.copy_(anchor);
    return;
  }
  weights.sub_(anchor).mul_(share).add_(anchor);
}

}  // namespace trireme::parallel
