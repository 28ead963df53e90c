#include "trireme/train/optimizer/optimizer.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/train/optimizer/adafactor.h"
#include "trireme/train/optimizer/adamw.h"
#include "trireme/train/optimizer/lamb.h"
#include "trireme/train/optimizer/lars.h"
#include "trireme/train/optimizer/lion.h"
#include "trireme/train/optimizer/muon.h"
#include "trireme/train/optimizer/name_pattern.h"
#include "trireme/train/optimizer/sgd.h"

namespace trireme::train {

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

Optimizer::Optimizer(std::span<const parallel::Shard> shards, const OptimizerConfig& config)
    : shards_(shards),
      rule_(make_update_rule(config)),
      settings_(
          parameter_settings(shards, parse_parameter_groups(config.groups), config.weight_decay)) {
  for (const parallel::Shard& shard : shards_) {
    const auto dtype = shard.weights.scalar_type();
    TRIREME_ASSERT(dtype == at::kFloat || dtype == at::kDouble, shard.name, " is ",
                   toString(dtype));
    TRIREME_ASSERT(shard.weights.is_contiguous(), shard.name, " is not contiguous");
    ShardState& state = states_.emplace_back(rule_->state_of(shard));
    const auto options = shard.weights.options().requires_grad(false);
    for (const StateSpec& spec : state.specs) {
      state.tensors.push_back(at::zeros(spec.local_shape, options));
    }
  }
}

void Optimizer::step(double learning_rate) {
  ++num_steps_;
  std::vector<UpdateItem> items;
  for (size_t i = 0; i < shards_.size(); ++i) {
    const parallel::Shard& shard = shards_[i];
    if (!shard.gradient.defined() || shard.weights.numel() == 0) continue;
    TRIREME_ASSERT(shard.gradient.sizes() == shard.weights.sizes(), shard.name, " has shape ",
                   shard.weights.sizes(), " and a gradient of shape ", shard.gradient.sizes());
    items.push_back({.weights = shard.weights,
                     .gradient = shard.gradient.contiguous(),
                     .state = states_[i].tensors,
                     .weight_decay = settings_[i].weight_decay,
                     .rate_scale = settings_[i].rate_scale});
  }
  rule_->update(items, learning_rate, num_steps_);
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
