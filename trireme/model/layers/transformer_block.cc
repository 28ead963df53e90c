#include "trireme/model/layers/transformer_block.h"

#include <algorithm>

#include <ATen/ATen.h>

namespace trireme::model {

void TransformerBlock::set_recompute(const RecomputePlan& plan, int64_t index) {
  plan_ = plan.of_block(index);
  for (const auto& attention : attentions_) attention->recompute_core = plan_.attention_core;
}

at::Tensor TransformerBlock::close_branch(const BranchForm& form, const at::Tensor& y,
                                          const at::Tensor& residual, const TokenBatch& batch) {
  const at::Tensor branch = form.after ? form.after->forward(y) : y;
  if (form.scale == 1) return form.dropout.add(branch, residual, batch);
  return at::add(residual, form.dropout.forward(branch, batch), form.scale);
}

// One that nothing behind learns through has no backward, so that it keeps nothing either.
at::Tensor TransformerBlock::forward(const at::Tensor& x, const TokenBatch& batch) {
  std::vector<at::Tensor> inputs{x};
  for (const at::Tensor& tensor : batch.tracked()) inputs.push_back(tensor);
  const auto needs = [](const at::Tensor& tensor) { return tensor.requires_grad(); };
  if (at::GradMode::is_enabled() && std::ranges::none_of(inputs, needs) &&
      std::ranges::none_of(parameters(), needs)) {
    const at::NoGradGuard guard;
    return compute(x, batch);
  }
  return run_block(
      plan_,
      [this, batch](const std::vector<at::Tensor>& in) {
        return compute(in[0], batch.with_tracked(std::span(in).subspan(1)));
      },
      inputs);
}

}  // namespace trireme::model
