#include "trireme/model/experts/expert_feed_forward.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/model/family/init.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/expert/expert_order.h"
#include "trireme/parallel/expert/expert_replicas.h"
#include "trireme/parallel/expert/grouped_linear.h"
#include "trireme/parallel/tensor/branch_rows.h"

namespace trireme::model {

ExpertWeights::ExpertWeights(int64_t experts, int64_t width, int64_t rows, at::ScalarType dtype) {
  gate_proj = register_parameter("gate_proj", new_parameter({experts, rows, width}, dtype));
  up_proj = register_parameter("up_proj", new_parameter({experts, rows, width}, dtype));
  down_proj = register_parameter("down_proj", new_parameter({experts, width, rows}, dtype));
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

at::Tensor ExpertFeedForward::run_experts(parallel::RowExchange& exchange,
                                          const std::vector<at::Tensor>& in,
                                          const parallel::GroupedOptions& options,
                                          const std::function<void()>& while_tokens_travel,
                                          const std::function<void()>& before_products) const {
  at::Tensor rows;
  if (while_tokens_travel) {
    const at::Tensor started = exchange.start_to_experts(in[0]);
    while_tokens_travel();
    rows = exchange.finish_to_experts(started);
  } else {
    rows = exchange.to_experts(in[0]);
  }
  if (before_products) before_products();
  const parallel::ExpertRows counts = exchange.rows();
  parallel::GroupedOptions of_inputs = options, of_results = options;
  if (!options.copies.empty()) {
    of_inputs.copies = {options.copies[0], options.copies[1]};
    of_results.copies = {options.copies[2]};
  }
  const std::vector<at::Tensor> gate_up =
      parallel::grouped_linear(rows, {in[2], in[3]}, counts, of_inputs);
  const at::Tensor results =
      parallel::grouped_linear(swiglu(gate_up[0], gate_up[1]), {in[4]}, counts, of_results)[0];
  return exchange.to_tokens(results, in[1]);
}

namespace {

// Tokens in chunks. Forward takes them in order and backward in the reverse, each sending the next
// chunk ahead.
struct Chunks {
  at::Tensor x_SD;
  at::Tensor experts_SK;
  int64_t size;
  int64_t count;  // on the rank that has most; others' last ones may be empty
  std::shared_ptr<const parallel::ExpertReplicas> replicas;
  parallel::ExpertAxis axis;
  std::map<int64_t, parallel::RowExchange> ahead{};

  at::Tensor of(const at::Tensor& x, int64_t chunk) const {
    const int64_t first = std::min(chunk * size, x.size(0));
    return x.narrow(0, first, std::min(size, x.size(0) - first));
  }
  parallel::RowExchange exchange_of(int64_t chunk) const {
    return {parallel::order_by_expert(of(experts_SK, chunk), replicas->first().back()), axis,
            replicas->first()};
  }
  parallel::RowExchange take(int64_t chunk) {
    auto node = ahead.extract(chunk);
    return node.empty() ? exchange_of(chunk) : std::move(node.mapped());
  }
  void send_ahead(int64_t chunk) {
    if (chunk < 0 || chunk >= count) return;
    ahead.emplace(chunk, exchange_of(chunk)).first->second.send_ahead(of(x_SD, chunk));
  }
};

}  // namespace

at::Tensor ExpertFeedForward::run_in_chunks(const at::Tensor& x_SD, const at::Tensor& experts_SK,
                                            const at::Tensor& weights_SK,
                                            const parallel::GroupedOptions& options) const {
  // Ranks may have different numbers of tokens, and each chunk is an exchange of all.
  const int64_t size = expert_axis_.chunk_tokens;
  const at::Tensor most = at::full({1}, (x_SD.size(0) + size - 1) / size, at::kLong);
  if (expert_axis_.size() > 1) {
    expert_axis_.group->all_reduce(most, {.operation = comm::ReduceOp::kMax})->wait();
  }
  const auto chunks = std::make_shared<Chunks>(Chunks{x_SD.detach(), experts_SK, size,
                                                      std::max<int64_t>(1, most.item<int64_t>()),
                                                      options.replicas, expert_axis_});
  std::vector<at::Tensor> outputs;
  const StoresInputs none(nullptr);  // weights are among the inputs
  for (int64_t chunk = 0; chunk < chunks->count; ++chunk) {
    outputs.push_back(recompute(
        [this, chunks, chunk, options](const std::vector<at::Tensor>& in) {
          parallel::RowExchange exchange = chunks->take(chunk);
          const int64_t next = at::GradMode::is_enabled() ? chunk - 1 : chunk + 1;
          return run_experts(exchange, in, options, {}, [&] { chunks->send_ahead(next); });
        },
        {chunks->of(x_SD, chunk), chunks->of(weights_SK, chunk), experts->gate_proj,
         experts->up_proj, experts->down_proj}));
  }
  return at::cat(outputs);
}

parallel::GroupedOptions ExpertFeedForward::copied_experts(const TokenBatch& batch) const {
  const auto replicas = std::make_shared<parallel::ExpertReplicas>(
      batch.training ? gate->busiest() : std::vector<int64_t>{}, num_experts_, expert_axis_);
  parallel::GroupedOptions options{.replicas = replicas};
  if (replicas->num_copied() == 0) return options;
  for (const at::Tensor& stack : {experts->gate_proj, experts->up_proj, experts->down_proj}) {
    options.copies.push_back(replicas->copies_of(stack));
  }
  return options;
}

at::Tensor ExpertFeedForward::forward(const at::Tensor& x, const at::Tensor& residual,
                                      const TokenBatch& batch) {
  at::Tensor sum = residual;
  std::function<void()> run_shared;
  if (shared_experts) run_shared = [&] { sum = shared_experts->forward(x, residual, batch); };
  const at::Tensor x_SD = parallel::open_branch(x, batch.B * batch.T, axis_);
  const ChosenExperts choice = gate->forward(x_SD, batch);
  parallel::GroupedOptions options = copied_experts(batch);
  const at::Tensor experts_SK = options.replicas->renumber(choice.experts_SK);
  if (expert_axis_.chunk_tokens > 0) {
    if (run_shared) run_shared();
    const at::Tensor y_SD = run_in_chunks(x_SD, experts_SK, choice.weights_SK, options);
    return dropout.add(parallel::close_branch(y_SD, x.sizes(), axis_), sum, batch);
  }
  if (axis_.weight_gradients != nullptr) {
    options.defer = [later = axis_.weight_gradients](const at::Tensor& leaf,
                                                     std::function<at::Tensor()> gradient) {
      return later->defer(leaf, std::move(gradient));
    };
  }
  const std::vector<int64_t>& first = options.replicas->first();
  parallel::RowExchange exchange(parallel::order_by_expert(experts_SK, first.back()), expert_axis_,
                                 first);
  const at::Tensor y_SD = run_experts(
      exchange, {x_SD, choice.weights_SK, experts->gate_proj, experts->up_proj, experts->down_proj},
      options, run_shared, {});
  return dropout.add(parallel::close_branch(y_SD, x.sizes(), axis_), sum, batch);
}

}  // namespace trireme::model
