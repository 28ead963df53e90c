#include "trireme/train/optimizer/sgd.h"

#include <ATen/ATen.h>

#include "trireme/train/optimizer/elementwise.h"

namespace trireme::train::inline internal {

std::vector<StateSpec> SgdRule::state_of(const parallel::Shard& shard) const {
  if (momentum_ == 0) return {};
  return {state_like(shard, "momentum_buffer")};
}

void SgdRule::update(std::span<const UpdateItem> items, double learning_rate, int64_t) const {
  update_elementwise(items, [&](PieceBatch& batch) {
    const std::vector<at::Tensor> none;
    // With a buffer of zeros, the first step is the same as with torch's is_first_step.
    at::_fused_sgd_(batch.weights, batch.gradients, momentum_ == 0 ? none : batch.state[0],
                    batch.weight_decay, momentum_, learning_rate * batch.rate_scale,
                    /*dampening=*/0.0, nesterov_ && momentum_ != 0, /*maximize=*/false,
                    /*is_first_step=*/false);
  });
}

}  // namespace trireme::train::inline internal
