#include "trireme/model/experts/expert_feed_forward.h"

#include <ATen/ATen.h>

#include "trireme/parallel/expert/grouped_linear.h"
#include "trireme/parallel/expert/token_rows.h"
#include "trireme/parallel/tensor/branch_rows.h"

namespace trireme::model::inline internal {

ExpertWeights::ExpertWeights(int64_t experts, int64_t width, int64_t rows, at::ScalarType dtype) {
  gate_proj = register_parameter("gate_proj", at::zeros({experts, rows, width}, dtype));
  up_proj = register_parameter("up_proj", at::zeros({experts, rows, width}, dtype));
  down_proj = register_parameter("down_proj", at::zeros({experts, width, rows}, dtype));
}

ExpertFeedForward::ExpertFeedForward(const ModelConfig& config, const ModelAxes& axes,
                                     at::ScalarType dtype, int64_t layer)
    : axis_(axes.tensor), expert_axis_(axes.expert), num_experts_(config.sparse.experts) {
  const TensorCuts cuts(config, axis_.size());
  gate = register_module("gate", std::make_shared<Router>(config, axes, dtype, layer));
  const int64_t own = expert_axis_.experts_of(num_experts_, expert_axis_.rank()).size;
  experts = register_module(
      "experts",
      std::make_shared<ExpertWeights>(own, config.width, cuts.expert_of(axis_.rank()).size, dtype));
  if (config.sparse.shared_experts == 0) return;
  shared_experts = register_module(
      "shared_experts",
      std::make_shared<FeedForward>(config.width, cuts.shared_of(axis_.rank()).size, axes, dtype));
}

void ExpertFeedForward::set_dropout(double probability, const std::string& place) {
  dropout = Dropout(probability, place);
  if (shared_experts) shared_experts->dropout = Dropout(probability, place + ".shared_experts");
}

at::Tensor ExpertFeedForward::forward(const at::Tensor& x, const at::Tensor& residual,
                                      const TokenBatch& batch) {
  const at::Tensor sum = shared_experts ? shared_experts->forward(x, residual, batch) : residual;
  const at::Tensor x_SD = parallel::open_branch(x, batch.B * batch.T, axis_);
  const ChosenExperts choice = gate->forward(x_SD, batch);
  const parallel::ExpertOrder order = parallel::order_by_expert(choice.experts_SK, num_experts_);
  const parallel::RowExchange exchange(order.counts, expert_axis_);
  parallel::DeferGradient defer;
  if (axis_.weight_gradients != nullptr) {
    defer = [later = axis_.weight_gradients](const at::Tensor& leaf,
                                             std::function<at::Tensor()> gradient) {
      return later->defer(leaf, std::move(gradient));
    };
  }
  const std::vector<at::Tensor> gate_up =
      parallel::grouped_linear(exchange.to_experts(parallel::tokens_to_rows(x_SD, order)),
                               {experts->gate_proj, experts->up_proj}, exchange.counts(), defer);
  const at::Tensor results = parallel::grouped_linear(
      swiglu(gate_up[0], gate_up[1]), {experts->down_proj}, exchange.counts(), defer)[0];
  const at::Tensor y_SD =
      parallel::rows_to_tokens(exchange.from_experts(results), choice.weights_SK, order);
  return dropout.add(parallel::close_branch(y_SD, x.sizes(), axis_), sum, batch);
}

}  // namespace trireme::model::inline internal
