#include "trireme/model/layers/expert_feed_forward.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/expert/auxiliary_loss.h"
#include "trireme/parallel/expert/grouped_linear.h"
#include "trireme/parallel/expert/token_rows.h"
#include "trireme/parallel/tensor/branch_rows.h"
#include "trireme/parallel/tensor/replicated_weight.h"

namespace trireme::model::inline internal {

using parallel::Routing;

Router::Router(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype)
    : config_(config.sparse), axis_(axes.tensor) {
  weight = register_parameter("weight", at::zeros({config_.experts, config.width}, dtype));
}

Routing Router::forward(const at::Tensor& x_SD, const TokenBatch& batch) {
  const at::ScalarType wide = at::promote_types(x_SD.scalar_type(), at::kFloat);
  // As a product of one expert, so that a token's logits do not depend on the number of tokens.
  const at::Tensor weight_1ED = parallel::replicated_weight(weight, axis_).to(wide).unsqueeze(0);
  const int64_t counts[] = {x_SD.size(0)};
  const at::Tensor logits_SE = parallel::grouped_linear(x_SD.to(wide), {weight_1ED}, counts)[0];

  at::Tensor chosen_SK;
  const bool is_repeated = batch.training && is_recomputing();
  const bool will_repeat = batch.training && !is_repeated && !at::GradMode::is_enabled();
  if (is_repeated) {
    const auto found = chosen_.find({batch.training->step, batch.training->first_sample});
    TRIREME_ASSERT(found != chosen_.end(), "a forward is repeated that was not there");
    chosen_SK = std::move(found->second);
    chosen_.erase(found);
  }
  Routing routing = parallel::route(logits_SE, {}, config_.router(), chosen_SK);
  if (will_repeat) {
    chosen_[{batch.training->step, batch.training->first_sample}] = routing.experts_SK;
  }
  // Every rank of the tensor axis computes the same terms, and their gradients are summed.
  if (!batch.training || axis_.rank() > 0) return routing;
  if (const at::Tensor loss = auxiliary_loss(logits_SE, routing, batch); loss.defined()) {
    routing.weights_SK =
        parallel::with_loss(routing.weights_SK, loss, batch.training->gradient_scale);
  }
  return routing;
}

at::Tensor Router::auxiliary_loss(const at::Tensor& logits_SE, const Routing& routing,
                                  const TokenBatch& batch) const {
  TRIREME_ASSERT(batch.training->num_samples > 0, "a step without samples");
  const auto num_sequences = static_cast<double>(batch.training->num_samples);
  const int64_t T = batch.context ? batch.context->split.length() : batch.T;
  at::Tensor loss;
  if (config_.balance_loss > 0) {
    const at::Tensor tokens_BE = parallel::tokens_of_experts(
        routing.experts_SK, batch.B, config_.experts, logits_SE.scalar_type());
    if (batch.context) batch.context->group.all_reduce(tokens_BE)->wait();
    loss = parallel::balance_loss(routing.scores_SE.view({batch.B, batch.T, config_.experts}),
                                  tokens_BE, T, config_.experts_per_token) *
           (config_.balance_loss / num_sequences);
  }
  if (config_.router_z_loss > 0) {
    const at::Tensor z = parallel::router_z_loss(logits_SE) *
                         (config_.router_z_loss / (num_sequences * static_cast<double>(T)));
    loss = loss.defined() ? loss + z : z;
  }
  return loss;
}

ExpertWeights::ExpertWeights(int64_t experts, int64_t width, int64_t rows, at::ScalarType dtype) {
  gate_proj = register_parameter("gate_proj", at::zeros({experts, rows, width}, dtype));
  up_proj = register_parameter("up_proj", at::zeros({experts, rows, width}, dtype));
  down_proj = register_parameter("down_proj", at::zeros({experts, width, rows}, dtype));
}

ExpertFeedForward::ExpertFeedForward(const ModelConfig& config, const ModelAxes& axes,
                                     at::ScalarType dtype)
    : axis_(axes.tensor), expert_axis_(axes.expert), num_experts_(config.sparse.experts) {
  const TensorCuts cuts(config, axis_.size());
  gate = register_module("gate", std::make_shared<Router>(config, axes, dtype));
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
  const parallel::Routing routing = gate->forward(x_SD, batch);
  const parallel::ExpertOrder order = parallel::order_by_expert(routing.experts_SK, num_experts_);
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
      parallel::rows_to_tokens(exchange.from_experts(results), routing.weights_SK, order);
  return dropout.add(parallel::close_branch(y_SD, x.sizes(), axis_), sum, batch);
}

}  // namespace trireme::model::inline internal
