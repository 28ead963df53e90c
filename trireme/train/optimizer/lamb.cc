#include "trireme/train/optimizer/lamb.h"

#include <cmath>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/train/numerics/tensor_norm.h"

namespace trireme::train::inline internal {

std::vector<StateSpec> LambRule::state_of(const parallel::Shard& shard) const {
  return {state_like(shard, "exp_avg"), state_like(shard, "exp_avg_sq")};
}

at::Tensor LambRule::adam_step(const UpdateItem& item, int64_t step) const {
  const at::Tensor gradient = converted_gradient(item);
  const at::Tensor& exp_avg = item.state[0];
  const at::Tensor& exp_avg_sq = item.state[1];
  at::Tensor scratch = at::mul(gradient, 1 - beta1_);
  exp_avg.mul_(beta1_).add_(scratch);
  at::mul_out(scratch, gradient, gradient);
  exp_avg_sq.mul_(beta2_).add_(scratch.mul_(1 - beta2_));

  const auto t = static_cast<double>(step);
  at::div_out(scratch, exp_avg_sq, at::scalar_tensor(1 - std::pow(beta2_, t), at::kDouble));
  scratch.sqrt_().add_(epsilon_);
  return at::div(exp_avg, scratch.mul_(1 - std::pow(beta1_, t)));
}

void LambRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t step) const {
  const c10::NoGradGuard no_grad;
  for (const UpdateItem& item : items) {
    if (item.weights.numel() == 0) continue;
    const at::Tensor weights = item.weights.detach();
    const at::Tensor direction = adam_step(item, step);
    if (item.weight_decay != 0) direction.add_(at::mul(weights, item.weight_decay));
    const at::Tensor ratio = trust_ratio(l2_norm(weights), l2_norm(direction));
    weights.sub_(direction.mul_(ratio.mul(learning_rate * item.rate_scale)));
  }
}

}  // namespace trireme::train::inline internal
