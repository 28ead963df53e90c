#include "trireme/train/optimizer/lars.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/train/numerics/tensor_norm.h"

namespace trireme::train::inline internal {
namespace {

constexpr double kTrustCoefficient = 0.001;

}  // namespace

std::vector<StateSpec> LarsRule::state_of(const parallel::Shard& shard) const {
  return {state_like(shard, "momentum_buffer")};
}

void LarsRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t) const {
  const c10::NoGradGuard no_grad;
  for (const UpdateItem& item : items) {
    if (item.weights.numel() == 0) continue;
    const at::Tensor weights = item.weights.detach();
    const at::Tensor gradient = converted_gradient(item);
    const at::Tensor weight_norm = l2_norm(weights);
    const at::Tensor gradient_norm = l2_norm(gradient);
    const at::Tensor decayed_norm = at::add(gradient_norm, at::mul(weight_norm, item.weight_decay));
    const at::Tensor ratio = trust_ratio(at::mul(weight_norm, kTrustCoefficient), decayed_norm);
    const at::Tensor direction = at::mul(weights, item.weight_decay).add_(gradient);
    const at::Tensor& buffer = item.state[0];
    buffer.mul_(momentum_).add_(direction.mul_(ratio.mul(learning_rate * item.rate_scale)));
    weights.sub_(buffer);
  }
}

}  // namespace trireme::train::inline internal
