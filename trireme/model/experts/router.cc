#include "trireme/model/experts/router.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/mesh/probe.h"
#include "trireme/model/family/init.h"
#include "trireme/model/family/token_probe.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/philox.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/expert/expert_replicas.h"
#include "trireme/parallel/expert/grouped_linear.h"
#include "trireme/parallel/expert/routing.h"
#include "trireme/parallel/tensor/tensor_axis.h"

namespace trireme::model {
namespace {

using parallel::Routing;

std::pair<int64_t, int64_t> place_of(const TokenBatch& batch) {
  return {batch.training->step, batch.training->first_sample};
}

// Number of tokens of the whole sequence. A rank of the context axis has only a part of it.
int64_t sequence_length(const TokenBatch& batch) {
  return batch.context ? batch.context->split.length() : batch.T;
}

// Gathers the rows of whole sequences from the ranks of the context axis.
// Shapes: own_SK [B * t, k] -> [B, T, k]
at::Tensor whole_sequences(const at::Tensor& own_SK, const TokenBatch& batch) {
  at::Tensor own_BtK = own_SK.view({batch.B, batch.T, own_SK.size(1)});
  if (!batch.context) return own_BtK;
  const int64_t T = batch.context->split.length();
  at::Tensor whole = at::zeros({batch.B, T, own_SK.size(1)}, own_SK.options());
  whole.index_copy_(1, batch.positions_T, own_BtK);
  batch.context->group.all_reduce(whole)->wait();  // all others are zero
  return whole;
}

// Hands out the values alone: a rank of the tensor axis has only its part of their gradient.
at::Tensor probe_logits(const at::Tensor& logits_SE, const TokenBatch& batch) {
  if (!verify::is_probing()) return logits_SE;
  const at::Tensor values_SE = logits_SE.detach();
  const at::Tensor next_SE = probe_tokens("router", values_SE, batch);
  // Numbers that are a roundoff apart: their difference is exact, and so is the sum.
  return next_SE.is_same(values_SE) ? logits_SE : logits_SE + (next_SE - values_SE);
}

}  // namespace

double RoutingCounts::max_violation() const {
  const double sum = std::reduce(assignments.begin(), assignments.end());
  return sum == 0
             ? 0
             : std::ranges::max(assignments) * static_cast<double>(assignments.size()) / sum - 1;
}

RoutingCounts routing_counts(std::span<const double> row) {
  TRIREME_ASSERT(std::ssize(row) > num_routing_counts(0), "a row of ", row.size(), " counts");
  const size_t E = row.size() - static_cast<size_t>(num_routing_counts(0));
  return {.assignments = row.first(E),
          .tokens = row[E],
          .dropped = row[E + 1],
          .entropy = row[E + 2],
          .balance_loss = row[E + 3],
          .z_loss = row[E + 4],
          .copied = row[E + 5]};
}

Router::Router(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
               int64_t layer)
    : config_(config.sparse),
      axis_(axes.tensor),
      block_(config.sparse.sparse_before(layer)),
      num_busiest_(axes.expert.replicas) {
  weight = register_parameter("weight", new_parameter({config_.experts, config.width}, dtype));
  if (config_.expert_bias) {
    bias = register_parameter("bias", new_parameter({config_.experts}, dtype));
  }
  if (config_.has_router_bias()) {
    e_score_correction_bias =
        register_buffer("e_score_correction_bias", at::zeros({config_.experts}, at::kFloat));
  }
  if (config_.balance_loss > 0 && config_.balance_over == BalanceOver::kBatch) {
    assignments = register_buffer("assignments", at::zeros({config_.experts}, at::kLong));
  }
}

ChosenExperts Router::forward(const at::Tensor& x_SD, const TokenBatch& batch) {
  const at::Tensor logits_SE = probe_logits(logits(x_SD, batch), batch);
  if (!batch.training) {
    const Routing routing = parallel::route(logits_SE, e_score_correction_bias, config_.router());
    return {routing.experts_SK, routing.weights_SK};
  }
  const bool is_repeated = is_recomputing();
  Chosen before;
  if (is_repeated) {
    const auto found = chosen_.find(place_of(batch));
    TRIREME_ASSERT(found != chosen_.end(), "a forward is repeated that was not there");
    before = found->second;
    // Microbatches without samples all have the same place, and the same choice.
    if (x_SD.size(0) > 0) chosen_.erase(found);
  }
  Routing routing =
      parallel::route(logits_SE, e_score_correction_bias, config_.router(), before.experts_SK);
  if (!is_repeated) replay(routing, logits_SE, batch);
  const at::Tensor kept_SK = is_repeated ? before.kept_SK : with_room(routing, batch);
  const bool will_repeat = !is_repeated && !at::GradMode::is_enabled();
  if (will_repeat) {
    const auto place = place_of(batch);
    std::erase_if(chosen_, [&](const auto& entry) { return entry.first.first < place.first; });
    chosen_[place] = {routing.experts_SK, kept_SK};
  }
  // Every rank of the tensor axis computes the same terms, and their gradients are summed.
  if (axis_.rank() > 0) return {kept_SK, routing.weights_SK};

  TRIREME_ASSERT(batch.training->num_samples > 0, "a step without samples");
  const auto num_sequences = static_cast<double>(batch.training->num_samples);
  const auto T = static_cast<double>(sequence_length(batch));
  at::Tensor balance, z_loss, loss;
  if (config_.balance_loss > 0) {
    balance = balance_loss(routing, batch);
    loss = balance * (config_.balance_loss / num_sequences);
  }
  if (config_.router_z_loss > 0) {
    z_loss = parallel::router_z_loss(logits_SE);
    const at::Tensor term = z_loss * (config_.router_z_loss / (num_sequences * T));
    loss = loss.defined() ? loss + term : term;
  }
  if (!is_repeated) count(routing, kept_SK, balance.defined() ? balance * T : balance, z_loss);
  if (!loss.defined()) return {kept_SK, routing.weights_SK};
  return {kept_SK, parallel::with_loss(routing.weights_SK, loss, batch.training->gradient_scale)};
}

void Router::replay(Routing& routing, const at::Tensor& logits_SE, const TokenBatch& batch) const {
  const at::Tensor& own_SK = routing.experts_SK;
  if (!verify::is_probing() || own_SK.numel() == 0) return;
  const at::Tensor used_SK =
      verify::probe_choices("router", own_SK, rows_of_tokens(batch, own_SK.size(0)));
  if (used_SK.is_same(own_SK)) return;
  const auto most = used_SK.max().item<int64_t>();
  TRIREME_CHECK(used_SK.min().item<int64_t>() >= 0 && most < config_.experts, "expert ", most,
                " is to be repeated, and model.experts is ", config_.experts,
                "; expected choices of a run with as many experts: give another record.choices");
  routing = parallel::route(logits_SE, e_score_correction_bias, config_.router(), used_SK);
}

at::Tensor Router::logits(const at::Tensor& x_SD, const TokenBatch& batch) const {
  const at::ScalarType wide = at::promote_types(x_SD.scalar_type(), at::kFloat);
  at::Tensor input_SD = x_SD.to(wide);
  if (batch.jitter) {
    const RandomKey key =
        random_key(batch.jitter->seed, concat("router_jitter/", batch.jitter->step, "/", block_));
    const at::Tensor draw_SD = uniform_rows(key, batch.jitter->rows_S, x_SD.size(1), wide);
    input_SD = input_SD * (draw_SD * (2 * config_.router_jitter) + (1 - config_.router_jitter));
  }
  // As a product of one expert, so that a token's logits do not depend on the number of tokens.
  const at::Tensor weight_1ED = parallel::replicated_weight(weight, axis_).to(wide).unsqueeze(0);
  const at::Tensor logits_SE =
      parallel::grouped_linear(input_SD, {weight_1ED}, {.counts = {x_SD.size(0)}})[0];
  if (!bias.defined()) return logits_SE;
  return logits_SE + parallel::replicated_weight(bias, axis_).to(wide);
}

at::Tensor Router::balance_loss(const Routing& routing, const TokenBatch& batch) const {
  const int64_t E = config_.experts, k = config_.experts_per_token, T = sequence_length(batch);
  const at::ScalarType dtype = routing.scores_SE.scalar_type();
  at::Tensor tokens_BE;
  if (config_.balance_over == BalanceOver::kSequence) {
    tokens_BE = parallel::tokens_of_experts(routing.experts_SK, batch.B, E, dtype);
    if (batch.context) batch.context->group.all_reduce(tokens_BE)->wait();
  } else {
    // Tokens per expert if this sequence routed like the previous step. Before the first step all
    // experts are alike, and the loss has no gradient.
    const at::Tensor shares_E =
        (assignments.to(at::kDouble) / assignments.sum()).nan_to_num(1 / static_cast<double>(E));
    tokens_BE = (shares_E * static_cast<double>(k * T)).to(dtype);
  }
  return parallel::balance_loss(routing.scores_SE.view({batch.B, batch.T, E}), tokens_BE, T, k);
}

at::Tensor Router::with_room(const Routing& routing, const TokenBatch& batch) const {
  if (config_.capacity_factor == 0) return routing.experts_SK;
  const at::NoGradGuard no_grad;
  const int64_t k = config_.experts_per_token;
  const int64_t capacity = parallel::expert_capacity(config_.capacity_factor,
                                                     sequence_length(batch), k, config_.experts);
  const bool reads_weights = config_.drop_by == DropBy::kProbability;
  const at::Tensor kept_BTK = parallel::drop_over_capacity(
      whole_sequences(routing.experts_SK, batch),
      reads_weights ? whole_sequences(routing.weights_SK.detach(), batch) : at::Tensor(),
      config_.experts, capacity, config_.drop_by);
  const at::Tensor own = batch.context ? kept_BTK.index_select(1, batch.positions_T) : kept_BTK;
  return own.reshape({-1, k});
}

void Router::count(const Routing& routing, const at::Tensor& kept_SK,
                   const at::Tensor& balance_loss, const at::Tensor& z_loss) {
  const at::NoGradGuard no_grad;
  const int64_t E = config_.experts;
  const at::Tensor& scores_SE = routing.scores_SE;
  const at::Tensor shares_SE = parallel::shares_of(scores_SE);
  const auto options = scores_SE.options().dtype(at::kDouble);
  const auto number = [&](const at::Tensor& value) {
    return value.defined() ? value.detach().to(at::kDouble).view({1}) : at::zeros({1}, options);
  };
  at::Tensor copied;
  if (!busiest_.empty()) {
    copied = at::isin(kept_SK, at::tensor(busiest_, kept_SK.options())).sum();
  }
  const at::Tensor row =
      at::cat({parallel::tokens_of_experts(routing.experts_SK, 1, E, at::kDouble).view({E}),
               at::full({1}, static_cast<double>(scores_SE.size(0)), options),
               number(kept_SK.lt(0).sum()), number(-at::xlogy(shares_SE, shares_SE).sum()),
               number(balance_loss), number(z_loss), number(copied)});
  counted_ = counted_.defined() ? counted_ + row : row;
}

void Router::take_counts(std::span<double> table) {
  if (!counted_.defined()) return;
  const at::Tensor row = counted_.cpu();
  counted_.reset();
  const std::span<double> mine = row_of_block(table, block_, config_.experts);
  for (size_t i = 0; i < mine.size(); ++i) mine[i] += row.const_data_ptr<double>()[i];
}

void Router::use_counts(std::span<const double> table) {
  const at::NoGradGuard no_grad;
  const RoutingCounts counts = routing_counts(row_of_block(table, block_, config_.experts));
  const at::Tensor now = at::tensor(at::ArrayRef<double>(counts.assignments), at::kDouble);
  if (assignments.defined()) assignments.copy_(now);
  busiest_ = parallel::busiest_experts(counts.assignments, num_busiest_);
  if (config_.router_bias_rate > 0) {
    const at::Tensor direction = (now.mean() - now).sign().to(e_score_correction_bias.options());
    e_score_correction_bias.add_(direction, config_.router_bias_rate);
  }
}

std::vector<Router*> routers_of(torch::nn::Module& module) {
  std::vector<Router*> found;
  module.apply([&found](torch::nn::Module& each) {
    if (auto* const router = dynamic_cast<Router*>(&each)) found.push_back(router);
  });
  return found;
}

}  // namespace trireme::model
