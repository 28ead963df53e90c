#include "trireme/model/experts/expert_feed_forward.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/model/family/init.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/expert/expert_order.h"
#include "trireme/parallel/expert/expert_replicas.h"
#include "trireme/parallel/expert/grouped_linear.h"
#include "trireme/parallel/tensor/branch_rows.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {

namespace {

constexpr size_t kNumProjections = 3;  // gate, up and down
constexpr size_t kGateUpFactors = 3;   // their A, and a B of each

}  // namespace

ExpertWeights::ExpertWeights(int64_t experts, int64_t width, int64_t rows, bool with_biases,
                             at::ScalarType dtype) {
  gate_proj = register_parameter("gate_proj", new_parameter({experts, rows, width}, dtype));
  up_proj = register_parameter("up_proj", new_parameter({experts, rows, width}, dtype));
  down_proj = register_parameter("down_proj", new_parameter({experts, width, rows}, dtype));
  if (!with_biases) return;
  gate_proj_bias = register_parameter("gate_proj_bias", new_parameter({experts, rows}, dtype));
  up_proj_bias = register_parameter("up_proj_bias", new_parameter({experts, rows}, dtype));
  down_proj_bias = register_parameter("down_proj_bias", new_parameter({experts, width}, dtype));
}

at::Tensor ExpertWeights::add_factor(const std::string& name, at::IntArrayRef shape) {
  const size_t dot = name.rfind('.');
  const auto factor =
      register_at(*this, name.substr(0, dot), std::make_shared<torch::nn::Module>());
  return factor->register_parameter(name.substr(dot + 1),
                                    new_parameter(shape, gate_proj.scalar_type()));
}

void ExpertWeights::add_adapters(const AdapterConfig& lora, bool of_gate_up, bool of_down) {
  const int64_t e = gate_proj.size(0), f = gate_proj.size(1), D = gate_proj.size(2), r = lora.rank;
  adapter_scale = lora.scale();
  if (of_gate_up) {
    gate_up_A = add_factor(concat("gate_up_proj", kAdapterA), {e, r, D});
    gate_B = add_factor(concat("gate_proj", kAdapterB), {e, f, r});
    up_B = add_factor(concat("up_proj", kAdapterB), {e, f, r});
  }
  if (!of_down) return;
  down_A = add_factor(concat("down_proj", kAdapterA), {e, r, f});
  down_B = add_factor(concat("down_proj", kAdapterB), {e, D, r});
}

ExpertFeedForward::ExpertFeedForward(const ModelConfig& config, const ModelAxes& axes,
                                     at::ScalarType dtype, int64_t layer)
    : axis_(axes.tensor),
      expert_axis_(axes.expert),
      num_experts_(config.sparse.experts),
      swiglu_limit_(config.sparse.swiglu_limit),
      swiglu_alpha_(config.sparse.swiglu_alpha) {
  const TensorCuts cuts(config, axis_.size());
  gate = register_module("gate", std::make_shared<Router>(config, axes, dtype, layer));
  const int64_t own = expert_axis_.experts_of(num_experts_, expert_axis_.rank()).size;
  experts = register_module("experts", std::make_shared<ExpertWeights>(
                                           own, config.width, cuts.expert_of(axis_.rank()).size,
                                           config.sparse.expert_bias, dtype));
  if (config.sparse.shared_experts == 0) return;
  shared_experts = register_module(
      "shared_experts",
      std::make_shared<FeedForward>(config.width, cuts.shared_of(axis_.rank()).size, axes, dtype));
  if (!config.sparse.shared_gate) return;
  shared_expert_gate = register_module(
      "shared_expert_gate", std::make_shared<Linear>(config.width, 1, /*bias=*/false, dtype));
}

void ExpertFeedForward::set_dropout(double probability, const std::string& place) {
  dropout = Dropout(probability, place);
  if (shared_experts) shared_experts->dropout = Dropout(probability, place + ".shared_experts");
}

Dropout ExpertFeedForward::take_dropout() {
  if (shared_experts) shared_experts->dropout = {};
  return std::exchange(dropout, {});
}

std::vector<at::Tensor> ExpertFeedForward::stacks() const {
  std::vector<at::Tensor> stacks{experts->gate_proj, experts->up_proj, experts->down_proj};
  if (experts->down_proj_bias.defined()) {
    at::Tensor down_bias = parallel::replicated_weight(experts->down_proj_bias, axis_);
    if (axis_.rank() > 0) down_bias = down_bias * 0;
    for (const at::Tensor& bias : {experts->gate_proj_bias, experts->up_proj_bias, down_bias}) {
      stacks.push_back(bias.unsqueeze(2));
    }
  }
  if (experts->gate_up_A.defined()) {
    stacks.push_back(parallel::replicated_weight(experts->gate_up_A, axis_));
    stacks.insert(stacks.end(), {experts->gate_B, experts->up_B});
  }
  if (experts->down_A.defined()) {
    stacks.push_back(experts->down_A);
    stacks.push_back(parallel::replicated_weight(experts->down_B, axis_));
  }
  return stacks;
}

size_t ExpertFeedForward::place_of_biases() const {
  return experts->down_proj_bias.defined() ? kNumProjections : 0;
}

size_t ExpertFeedForward::place_of_adapter(size_t first) const {
  const bool is_down = first + 1 == kNumProjections;
  if (!(is_down ? experts->down_A : experts->gate_up_A).defined()) return 0;
  const size_t begin = kNumProjections + place_of_biases();
  return is_down && experts->gate_up_A.defined() ? begin + kGateUpFactors : begin;
}

std::vector<at::Tensor> ExpertFeedForward::multiply(const at::Tensor& x,
                                                    std::span<const at::Tensor> stacks,
                                                    size_t first, size_t count,
                                                    const parallel::ExpertRows& rows,
                                                    const parallel::GroupedOptions& options) const {
  const auto product = [&](const at::Tensor& input, const std::vector<size_t>& places,
                           parallel::DeferGradient defer) {
    parallel::GroupedOptions own{.defer = std::move(defer), .replicas = options.replicas};
    std::vector<at::Tensor> weights;
    for (const size_t place : places) {
      weights.push_back(stacks[place]);
      if (!options.copies.empty()) own.copies.push_back(options.copies[place]);
    }
    return parallel::grouped_linear(input, weights, rows, own);
  };
  const auto places_from = [&](size_t begin) {
    std::vector<size_t> places(count);
    std::iota(places.begin(), places.end(), begin);
    return places;
  };
  // x meets A as it meets a further stack.
  const size_t adapter = place_of_adapter(first), biases = place_of_biases();
  std::vector<size_t> of_x = places_from(first);
  if (adapter > 0) of_x.push_back(adapter);
  std::vector<at::Tensor> results = product(x, of_x, options.defer);
  const auto add = [&](const std::vector<at::Tensor>& terms, double scale) {
    for (size_t i = 0; i < count; ++i) results[i] = at::add(results[i], terms[i], scale);
  };
  if (adapter > 0)
    add(product(results[count], places_from(adapter + 1), options.defer), experts->adapter_scale);
  results.resize(count);
  if (biases == 0) return results;
  // A bias times one is the bias, and its gradient is then summed as that of a weight.
  const at::Tensor ones = at::ones({x.size(0), 1}, x.options());
  add(product(ones, places_from(biases + first), {}), 1);
  return results;
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
  const std::span<const at::Tensor> stacks = std::span(in).subspan(2);
  const std::vector<at::Tensor> gate_up = multiply(rows, stacks, 0, 2, counts, options);
  const at::Tensor hidden =
      swiglu_limit_ > 0 ? clamped_swiglu(gate_up[0], gate_up[1], swiglu_limit_, swiglu_alpha_)
                        : swiglu(gate_up[0], gate_up[1]);
  const at::Tensor results = multiply(hidden, stacks, 2, 1, counts, options)[0];
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
                                            const std::vector<at::Tensor>& stacks,
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
    std::vector<at::Tensor> inputs{chunks->of(x_SD, chunk), chunks->of(weights_SK, chunk)};
    inputs.insert(inputs.end(), stacks.begin(), stacks.end());
    outputs.push_back(recompute(
        [this, chunks, chunk, options](const std::vector<at::Tensor>& in) {
          parallel::RowExchange exchange = chunks->take(chunk);
          const int64_t next = at::GradMode::is_enabled() ? chunk - 1 : chunk + 1;
          return run_experts(exchange, in, options, {}, [&] { chunks->send_ahead(next); });
        },
        inputs));
  }
  return at::cat(outputs);
}

parallel::GroupedOptions ExpertFeedForward::copied_experts(const std::vector<at::Tensor>& stacks,
                                                           const TokenBatch& batch) const {
  const auto replicas = std::make_shared<parallel::ExpertReplicas>(
      batch.training ? gate->busiest() : std::vector<int64_t>{}, num_experts_, expert_axis_);
  parallel::GroupedOptions options{.replicas = replicas};
  if (replicas->num_copied() == 0) return options;
  for (const at::Tensor& stack : stacks) {
    options.copies.push_back(replicas->copies_of(stack.detach()));
  }
  return options;
}

at::Tensor ExpertFeedForward::add_shared(const at::Tensor& x, const at::Tensor& residual,
                                         const TokenBatch& batch) const {
  if (!shared_expert_gate) return shared_experts->forward(x, residual, batch);
  const at::Tensor y = shared_experts->forward(x, {}, batch);
  // As a product of one expert, so that a token's logit does not depend on the number of tokens.
  const at::Tensor weight_11D =
      parallel::weight_of_rows(shared_expert_gate->weight, axis_).unsqueeze(0);
  const at::Tensor x_SD = parallel::view_rows(x);
  const at::Tensor logits_S1 =
      parallel::grouped_linear(x_SD, {weight_11D}, {.counts = {x_SD.size(0)}})[0];
  std::vector<int64_t> rows = x.sizes().vec();
  rows.back() = 1;
  const at::Tensor gated = y * logits_S1.sigmoid().view(rows);
  return residual.defined() ? residual + gated : gated;
}

at::Tensor ExpertFeedForward::forward(const at::Tensor& x, const at::Tensor& residual,
                                      const TokenBatch& batch) {
  at::Tensor sum = residual;
  std::function<void()> run_shared;
  if (shared_experts) run_shared = [&] { sum = add_shared(x, residual, batch); };
  const at::Tensor x_SD = parallel::open_branch(x, batch.B * batch.T, axis_);
  const ChosenExperts choice = gate->forward(x_SD, batch);
  const std::vector<at::Tensor> own = stacks();
  parallel::GroupedOptions options = copied_experts(own, batch);
  const at::Tensor experts_SK = options.replicas->renumber(choice.experts_SK);
  if (expert_axis_.chunk_tokens > 0) {
    if (run_shared) run_shared();
    const at::Tensor y_SD = run_in_chunks(x_SD, experts_SK, choice.weights_SK, own, options);
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
  std::vector<at::Tensor> inputs{x_SD, choice.weights_SK};
  inputs.insert(inputs.end(), own.begin(), own.end());
  const at::Tensor y_SD = run_experts(exchange, inputs, options, run_shared, {});
  return dropout.add(parallel::close_branch(y_SD, x.sizes(), axis_), sum, batch);
}

}  // namespace trireme::model
