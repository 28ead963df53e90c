#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

void TransformerBlock::set_recompute(const RecomputePlan& plan, int64_t index) {
  plan_ = plan.of_block(index);
  for (const auto& attention : attentions_) attention->recompute_core = plan_.attention_core;
}

at::Tensor TransformerBlock::forward(const at::Tensor& x, const TokenBatch& batch) {
  std::vector<at::Tensor> inputs{x};
  for (const at::Tensor& tensor : batch.tracked()) inputs.push_back(tensor);
  return run_block(
      plan_,
      [this, batch](const std::vector<at::Tensor>& in) {
        return compute(in[0], batch.with_tracked(std::span(in).subspan(1)));
      },
      inputs);
}

}  // namespace trireme::model
