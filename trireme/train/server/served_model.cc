#include "trireme/train/server/served_model.h"

#include <map>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/train/optimizer/parameter_groups.h"

namespace trireme::train::inline internal {
namespace {

// A parameter's optimizer tensors, in the order of the rule.
struct States {
  std::vector<std::string> names;
  std::vector<at::Tensor> values;
};

std::map<std::string, States> states_of(std::span<const parallel::Shard> shards,
                                        const Optimizer& optimizer) {
  std::map<std::string, States> states;
  for (const checkpoint::Entry& entry : optimizer.state()) {
    for (const parallel::Shard& shard : shards) {
      if (!entry.name.ends_with("." + shard.name)) continue;
      const std::string name = entry.name.substr(0, entry.name.size() - shard.name.size() - 1);
      if (name.find('.') != std::string::npos) continue;  // of a longer parameter's name
      States& found = states[shard.name];
      found.names.push_back(name);
      found.values.push_back(entry.local);
    }
  }
  return states;
}

class RulePiece final : public parallel::PieceUpdate {
 public:
  RulePiece(std::shared_ptr<const UpdateRule> rule, ParameterSettings settings, States states,
            int64_t first_step)
      : rule_(std::move(rule)),
        settings_(settings),
        states_(std::move(states)),
        first_step_(first_step) {}

  void apply(at::Tensor& weights, const parallel::PieceGradient& gradient, double learning_rate,
             int64_t step) override {
    const c10::NoGradGuard no_grad;
    const UpdateItem item{.weights = weights.view({-1}),
                          .gradient = gradient.values.view({-1}),
                          .state = states_.values,
                          .weight_decay = settings_.weight_decay,
                          .rate_scale = settings_.rate_scale};
    rule_->update({&item, 1}, learning_rate, first_step_ + step);
  }
  std::vector<parallel::PieceState> states() override {
    std::vector<parallel::PieceState> named;
    for (size_t i = 0; i < states_.names.size(); ++i) {
      named.push_back({states_.names[i], states_.values[i]});
    }
    return named;
  }

 private:
  std::shared_ptr<const UpdateRule> rule_;
  ParameterSettings settings_;
  States states_;  // flat, of this piece
  int64_t first_step_;
};

}  // namespace

std::vector<const parallel::Shard*> trained_shards(std::span<const parallel::Shard> shards) {
  std::vector<const parallel::Shard*> trained;
  for (const parallel::Shard& shard : shards) {
    TRIREME_ASSERT(shard.is_whole() && shard.weights.is_contiguous(), shard.name, " is not whole");
    if (shard.is_trained) trained.push_back(&shard);
  }
  return trained;
}

std::vector<parallel::ServedParameter> served_parameters(std::span<const parallel::Shard> shards) {
  std::vector<parallel::ServedParameter> parameters;
  for (const parallel::Shard* const shard : trained_shards(shards)) {
    parameters.push_back({.name = shard->name,
                          .rows = shard->weights.numel(),
                          .dtype = shard->weights.scalar_type()});
  }
  return parameters;
}

parallel::MakePiece make_pieces(const RunConfig& config, std::span<const parallel::Shard> shards,
                                const Optimizer& optimizer) {
  std::map<std::string, ParameterSettings> settings;
  const auto all = parameter_settings(shards, parse_parameter_groups(config.optimizer.groups),
                                      config.optimizer.weight_decay);
  for (size_t i = 0; i < shards.size(); ++i) settings[shards[i].name] = all[i];
  const std::shared_ptr<const UpdateRule> rule = make_update_rule(config.optimizer);
  return [rule, settings, trained = trained_shards(shards), states = states_of(shards, optimizer),
          first_step = optimizer.num_steps()](const parallel::Piece& piece, int64_t) {
    const parallel::Shard& shard = *trained.at(static_cast<size_t>(piece.parameter));
    const auto cut = [&](const at::Tensor& whole) {
      return whole.detach().reshape({-1}).narrow(0, piece.first_row, piece.rows).clone();
    };
    States mine;
    if (const auto found = states.find(shard.name); found != states.end()) {
      mine.names = found->second.names;
      for (const at::Tensor& whole : found->second.values) mine.values.push_back(cut(whole));
    }
    return parallel::ServedPiece{
        cut(shard.weights).view({-1, 1}),
        std::make_unique<RulePiece>(rule, settings.at(shard.name), std::move(mine), first_step)};
  };
}

void pull_into(parallel::ServerClient& client, std::span<const parallel::Shard> shards,
               const Optimizer& optimizer) {
  const auto trained = trained_shards(shards);
  std::vector<at::Tensor> weights;
  for (const parallel::Shard* const shard : trained) weights.push_back(shard->weights.detach());
  client.pull(0, weights);
  client.wait_all_pulled();
  const auto states = states_of(shards, optimizer);
  for (size_t i = 0; i < trained.size(); ++i) {
    const auto found = states.find(trained[i]->name);
    if (found == states.end()) continue;
    for (size_t k = 0; k < found->second.values.size(); ++k) {
      const at::Tensor& whole = found->second.values[k];
      const at::Tensor pulled = client.pull_state(static_cast<int64_t>(i), static_cast<int64_t>(k));
      whole.copy_(pulled.view(whole.sizes()));
    }
  }
}

}  // namespace trireme::train::inline internal
