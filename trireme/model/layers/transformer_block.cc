#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

void TransformerBlock::set_recompute(const RecomputePlan& plan, int64_t index) {
  plan_ = plan.of_block(index);
  attention_->recompute_core = plan_.attention_core;
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const TokenBatch& batch) {
  return run_block(
      plan_, [this, batch](const std::vector<at::Tensor>& in) { return compute(in[0], batch); },
      {x});
}

}  // namespace trireme::model
