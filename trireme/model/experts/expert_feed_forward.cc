#include "trireme/model/experts/expert_feed_forward.h"

#include <algorithm>
#include <functional>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/model/layers/recompute.h"
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

at::Tensor ExpertFeedForward::run_experts(const std::vector<at::Tensor>& in,
                                          const at::Tensor& experts_SK,
                                          const parallel::DeferGradient& defer,
                                          const std::function<void()>& meanwhile) const {
  const parallel::ExpertOrder order = parallel::order_by_expert(experts_SK, num_experts_);
  const parallel::RowExchange exchange(order.counts, expert_axis_);
  at::Tensor rows = parallel::tokens_to_rows(in[0], order);
  if (meanwhile) {
    const parallel::RowExchange::Arriving arriving = exchange.start_to_experts(rows);
    meanwhile();
    rows = exchange.finish_to_experts(arriving);
  } else {
    rows = exchange.to_experts(rows);
  }
  const std::vector<at::Tensor> gate_up =
      parallel::grouped_linear(rows, {in[2], in[3]}, exchange.counts(), defer);
  const at::Tensor results = parallel::grouped_linear(swiglu(gate_up[0], gate_up[1]), {in[4]},
                                                      exchange.counts(), defer)[0];
  return parallel::rows_to_tokens(exchange.from_experts(results), in[1], order);
}

at::Tensor ExpertFeedForward::run_in_chunks(const at::Tensor& x_SD,
                                            const ChosenExperts& choice) const {
  const int64_t S = x_SD.size(0), chunk = expert_axis_.chunk_tokens;
  // Ranks may have different numbers of tokens, and each chunk is an exchange of all.
  const at::Tensor most = at::full({1}, S, at::kLong);
  if (expert_axis_.size() > 1) {
    expert_axis_.group->all_reduce(most, {.operation = comm::ReduceOp::kMax})->wait();
  }
  std::vector<at::Tensor> outputs;
  for (int64_t begin = 0; begin == 0 || begin < most.item<int64_t>(); begin += chunk) {
    const int64_t first = std::min(begin, S), size = std::min(chunk, S - first);
    const at::Tensor experts_SK = choice.experts_SK.narrow(0, first, size);
    outputs.push_back(recompute(
        [this, experts_SK](const std::vector<at::Tensor>& in) {
          return run_experts(in, experts_SK, {}, {});
        },
        {x_SD.narrow(0, first, size), choice.weights_SK.narrow(0, first, size), experts->gate_proj,
         experts->up_proj, experts->down_proj}));
  }
  return at::cat(outputs);
}

at::Tensor ExpertFeedForward::forward(const at::Tensor& x, const at::Tensor& residual,
                                      const TokenBatch& batch) {
  at::Tensor sum = residual;
  std::function<void()> run_shared;
  if (shared_experts) run_shared = [&] { sum = shared_experts->forward(x, residual, batch); };
  const at::Tensor x_SD = parallel::open_branch(x, batch.B * batch.T, axis_);
  const ChosenExperts choice = gate->forward(x_SD, batch);
  if (expert_axis_.chunk_tokens > 0) {
    if (run_shared) run_shared();
    const at::Tensor y_SD = run_in_chunks(x_SD, choice);
    return dropout.add(parallel::close_branch(y_SD, x.sizes(), axis_), sum, batch);
  }
  parallel::DeferGradient defer;
  if (axis_.weight_gradients != nullptr) {
    defer = [later = axis_.weight_gradients](const at::Tensor& leaf,
                                             std::function<at::Tensor()> gradient) {
      return later->defer(leaf, std::move(gradient));
    };
  }
  const at::Tensor y_SD = run_experts(
      {x_SD, choice.weights_SK, experts->gate_proj, experts->up_proj, experts->down_proj},
      choice.experts_SK, defer, run_shared);
  return dropout.add(parallel::close_branch(y_SD, x.sizes(), axis_), sum, batch);
}

}  // namespace trireme::model::inline internal
