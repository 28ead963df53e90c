#include "trireme/train/optimizer/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/train/optimizer/adafactor.h"
#include "trireme/train/optimizer/adamw.h"
#include "trireme/train/optimizer/lamb.h"
#include "trireme/train/optimizer/lars.h"
#include "trireme/train/optimizer/lion.h"
#include "trireme/train/optimizer/muon.h"
#include "trireme/train/optimizer/name_pattern.h"
#include "trireme/train/optimizer/sgd.h"
#include "trireme/train/optimizer/stochastic_rounding.h"

namespace trireme::train {
namespace {

// Bounds what a step needs beside the states: gradients and weights of lower precision are widened.
constexpr int64_t kElementsAtATime = 4 << 20;

at::ScalarType update_dtype(const parallel::Shard& shard) {
  return at::promote_types(shard.weights.scalar_type(), at::kFloat);
}

}  // namespace

std::unique_ptr<const UpdateRule> make_update_rule(const OptimizerConfig& config) {
  const std::string& name = config.name;
  const double beta1 = config.beta1, beta2 = config.beta2, epsilon = config.epsilon;
  if (name == "adamw") return std::make_unique<AdamWRule>(beta1, beta2, epsilon);
  if (name == "sgd") return std::make_unique<SgdRule>(config.momentum, config.nesterov);
  if (name == "lion") return std::make_unique<LionRule>(beta1, beta2);
  if (name == "adafactor") return std::make_unique<AdafactorRule>();
  if (name == "lamb") return std::make_unique<LambRule>(beta1, beta2, epsilon);
  if (name == "lars") return std::make_unique<LarsRule>(config.momentum);
  if (name == "muon") {
    return std::make_unique<MuonRule>(
        MuonOptions{.momentum = config.momentum,
                    .nesterov = config.nesterov,
                    .adamw_patterns = split_list(config.adamw_parameters, ','),
                    .beta1 = beta1,
                    .beta2 = beta2,
                    .epsilon = epsilon});
  }
  throw InternalError("optimizer " + name);
}

bool needs_whole_parameters(const OptimizerConfig& config) {
  return make_update_rule(config)->needs_whole_parameters();
}

Optimizer::Optimizer(std::span<const parallel::Shard> shards, const OptimizerConfig& config,
                     const WeightOptions& weights)
    : shards_(shards),
      weights_(weights),
      rule_(make_update_rule(config)),
      settings_(
          parameter_settings(shards, parse_parameter_groups(config.groups), config.weight_decay)) {
  for (const parallel::Shard& shard : shards_) {
    TRIREME_ASSERT(shard.weights.is_contiguous(), shard.name, " is not contiguous");
    if (!shard.is_trained) {
      states_.emplace_back();
      continue;
    }
    ShardState& state = states_.emplace_back(rule_->state_of(shard));
    const auto options = shard.weights.options().requires_grad(false).dtype(update_dtype(shard));
    for (const StateSpec& spec : state.specs) {
      state.tensors.push_back(at::zeros(spec.local_shape, options));
    }
    state.has_master =
        weights_.master_weights && update_dtype(shard) != shard.weights.scalar_type();
    if (!state.has_master) continue;
    state.specs.push_back(state_like(shard, "master"));
    state.tensors.push_back(shard.weights.detach().to(options.dtype(), false, /*copy=*/true));
  }
}

UpdateItem Optimizer::make_item(size_t i, double gradient_factor) const {
  const parallel::Shard& shard = shards_[i];
  TRIREME_ASSERT(shard.gradient.sizes() == shard.weights.sizes(), shard.name, " has shape ",
                 shard.weights.sizes(), " and a gradient of shape ", shard.gradient.sizes());
  const at::ScalarType dtype = update_dtype(shard);
  UpdateItem item{.weights = shard.weights,
                  .gradient = shard.gradient.contiguous(),
                  .state = states_[i].tensors,
                  .weight_decay = settings_[i].weight_decay,
                  .rate_scale = settings_[i].rate_scale};
  if (states_[i].has_master) {
    item.weights = item.state.back();
    item.state.pop_back();
  } else {
    item.weights = item.weights.to(dtype);
  }
  if (gradient_factor == 1) return item;
  // The factor undoes a loss scale, which fp16 cannot hold.
  if (item.gradient.scalar_type() == dtype) {
    item.gradient.mul_(gradient_factor);
  } else {
    item.gradient = item.gradient.to(dtype).mul_(gradient_factor);
  }
  return item;
}

// Into the parameter, when the update was made elsewhere.
void Optimizer::store(size_t i, const UpdateItem& item) const {
  const parallel::Shard& shard = shards_[i];
  if (item.weights.is_same(shard.weights)) return;
  at::Tensor weights = shard.weights;
  if (weights_.stochastic_rounding && weights.scalar_type() == at::kBFloat16) {
    round_stochastically(
        item.weights, weights, shard.first_element(),
        random_key(weights_.seed, concat("rounding/", num_steps_, "/", shard.name)));
  } else {
    weights.copy_(item.weights);
  }
}

void Optimizer::step(double learning_rate, double gradient_factor) {
  const c10::NoGradGuard no_grad;
  ++num_steps_;
  for (size_t begin = 0; begin < shards_.size();) {
    std::vector<UpdateItem> items;
    std::vector<size_t> indices;
    int64_t elements = 0;
    size_t end = begin;
    for (; end < shards_.size() && elements < kElementsAtATime; ++end) {
      if (!shards_[end].gradient.defined() || shards_[end].weights.numel() == 0) continue;
      items.push_back(make_item(end, gradient_factor));
      indices.push_back(end);
      elements += shards_[end].weights.numel();
    }
    rule_->update(items, learning_rate, num_steps_);
    for (size_t k = 0; k < items.size(); ++k) store(indices[k], items[k]);
    begin = end;
  }
}

int64_t Optimizer::state_bytes() const {
  int64_t num_bytes = 0;
  for (const ShardState& state : states_) {
    for (const at::Tensor& tensor : state.tensors)
      num_bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return num_bytes;
}

std::vector<checkpoint::Entry> Optimizer::state() const {
  std::vector<checkpoint::Entry> entries;
  for (size_t i = 0; i < shards_.size(); ++i) {
    for (size_t k = 0; k < states_[i].specs.size(); ++k) {
      const StateSpec& spec = states_[i].specs[k];
      entries.push_back({spec.name + "." + shards_[i].name, states_[i].tensors[k], spec.layout});
    }
  }
  return entries;
}

}  // namespace trireme::train
