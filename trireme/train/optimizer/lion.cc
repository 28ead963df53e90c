#include "trireme/train/optimizer/lion.h"

#include <ATen/ATen.h>

#include "trireme/train/optimizer/elementwise.h"

namespace trireme::train::inline internal {

std::vector<StateSpec> LionRule::state_of(const parallel::Shard& shard) const {
  return {state_like(shard, "exp_avg")};
}

// Every operation rounds once, and there is no multiply-add to fuse. ATen's vector and scalar loops
// therefore agree, and not even a tensor's last elements depend on how it is cut.
void LionRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t) const {
  update_elementwise(items, [&](PieceBatch& batch) {
    const double rate = learning_rate * batch.rate_scale;
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      const at::Tensor& gradient = batch.gradients[i];
      const at::Tensor& exp_avg = batch.state[0][i];
      const at::Tensor direction =
          at::mul(exp_avg, beta1_).add_(at::mul(gradient, 1 - beta1_)).sign_();
      if (batch.weight_decay != 0) batch.weights[i].mul_(1 - rate * batch.weight_decay);
      batch.weights[i].sub_(direction.mul_(rate));
      exp_avg.mul_(beta2_).add_(at::mul(gradient, 1 - beta2_));
    }
  });
}

}  // namespace trireme::train::inline internal
