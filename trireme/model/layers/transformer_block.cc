#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

void TransformerBlock::set_recompute(const RecomputePlan& plan) {
  plan_ = plan;
  attention_->recompute_core = plan.attention_core;
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const TokenBatch& batch) {
  return recompute_if(
      plan_.block,
      [this, batch](const std::vector<at::Tensor>& in) { return compute(in[0], batch); }, {x});
}

}  // namespace trireme::model
