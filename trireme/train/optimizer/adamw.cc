#include "trireme/train/optimizer/adamw.h"

#include <ATen/ATen.h>

#include "trireme/train/optimizer/elementwise.h"

namespace trireme::train::inline internal {

std::vector<StateSpec> AdamWRule::state_of(const parallel::Shard& shard) const {
  return {state_like(shard, "exp_avg"), state_like(shard, "exp_avg_sq")};
}

void AdamWRule::update(std::span<const UpdateItem> items, double learning_rate,
                       int64_t step) const {
  if (items.empty()) return;
  // The kernel requires [] fp32 on the device of the weights; exact below 2^24.
  const at::Tensor step_number = at::full({}, step, items[0].weights.options().dtype(at::kFloat));
  update_elementwise(items, [&](PieceBatch& batch) {
    const std::vector<at::Tensor> steps(batch.weights.size(), step_number);
    at::_fused_adamw_(batch.weights, batch.gradients, batch.state[0], batch.state[1], {}, steps,
                      learning_rate * batch.rate_scale, beta1_, beta2_, batch.weight_decay,
                      epsilon_, /*amsgrad=*/false, /*maximize=*/false);
  });
}

}  // namespace trireme::train::inline internal
