#include "trireme/train/learner/decoupled_state.h"

#include <functional>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/train/learner/flat_weights.h"
#include "trireme/train/parallel/stage_costs.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

// In names of a checkpoint's tensors.
constexpr const char* kServedMomentum = "momentum";
constexpr const char* kTakenBase = "outer.base";
constexpr const char* kOwnResidual = "outer.residual";

}  // namespace

DecoupledState::DecoupledState(const RunConfig& config, TrainingState& state, int learner)
    : config_(config), state_(state), learner_(learner) {
  const c10::NoGradGuard no_grad;
  const std::map<std::string, int> fragments = fragments_by_name(state.model(), config.outer);
  for (const parallel::Shard& shard : state.model().shards()) {
    if (!shard.is_trained) continue;
    TRIREME_ASSERT(shard.is_whole() && shard.weights.is_contiguous(), shard.name, " is not whole");
    Weight weight;
    weight.shard = &shard;
    weight.base = weight.live().clone();
    weight.common = weight.base.clone();
    if (outer_options(config.outer).momentum != 0) weight.momentum = at::zeros_like(weight.base);
    if (loses(config.outer)) {
      weight.residual = at::zeros_like(weight.base, at::TensorOptions(at::kFloat));
    }
    weight.fragment = fragments.at(shard.name);
    weights_.push_back(std::move(weight));
  }
}

std::vector<size_t> DecoupledState::of_fragment(int fragment) const {
  std::vector<size_t> found;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i].fragment == fragment) found.push_back(i);
  }
  return found;
}

DecoupledState::Differences DecoupledState::differences(int fragment) const {
  const c10::NoGradGuard no_grad;
  Differences found;
  for (const size_t i : of_fragment(fragment)) {
    at::Tensor difference = (weights_[i].base - weights_[i].live()).view({-1});
    found.is_finite = found.is_finite && difference.isfinite().all().item<bool>();
    found.by_weight[i] = std::move(difference);
  }
  if (found.is_finite) return found;
  for (const auto& [i, difference] : found.by_weight) {
    difference.zero_();
    if (weights_[i].residual.defined()) weights_[i].residual.zero_();
  }
  return found;
}

void DecoupledState::take(int fragment, double own_share) {
  const c10::NoGradGuard no_grad;
  for (const size_t i : of_fragment(fragment)) {
    const Weight& weight = weights_[i];
    parallel::mix_with_anchor(weight.live(), weight.common, own_share);
    weight.base.copy_(weight.common);
  }
}

void DecoupledState::reset_states(int fragment) {
  const c10::NoGradGuard no_grad;
  for (const checkpoint::Entry& entry : state_.optimizer().state()) {
    const size_t dot = entry.name.find('.');
    const Weight* const weight = find(entry.name.substr(dot + 1));
    if (weight != nullptr && weight->fragment == fragment) entry.local.zero_();
  }
}

std::string DecoupledState::own_name(const std::string& name) const {
  return concat(kLearnerPrefix, learner_, ".", name);
}

const DecoupledState::Weight* DecoupledState::find(const std::string& name) const {
  for (const Weight& weight : weights_) {
    if (weight.shard->name == name) return &weight;
  }
  return nullptr;
}

std::set<std::string> DecoupledState::frozen_names() const {
  return frozen_parameters(config_, config_.task->model().parameters({}));
}

// The names are those of other learners (learner_entries.cc), so that the same programs read them.
std::vector<checkpoint::Entry> DecoupledState::to_save(std::vector<checkpoint::Entry> own) {
  const std::set<std::string> frozen = frozen_names();
  std::vector<checkpoint::Entry> entries;
  for (checkpoint::Entry& entry : own) {
    if (const Weight* const weight = find(entry.name)) {
      checkpoint::Entry common = entry;
      common.local = weight->common;
      entries.push_back(std::move(common));
      entry.name = own_name(entry.name);
    } else if (learner_ > 0 && !frozen.contains(entry.name)) {
      entry.name = own_name(entry.name);
    }
    entries.push_back(std::move(entry));
  }
  std::ranges::move(outer_entries(), std::back_inserter(entries));
  return entries;
}

std::vector<checkpoint::Entry> DecoupledState::outer_entries() const {
  std::vector<checkpoint::Entry> entries;
  const auto add = [&](const std::string& name, const Weight& weight, const at::Tensor& values) {
    if (!values.defined()) return;
    entries.push_back({name, values, weight.shard->layout, weight.shard->rank});
  };
  for (const Weight& weight : weights_) {
    const std::string& name = weight.shard->name;
    add(concat(kLearnerPrefix, kServedMomentum, ".", name), weight, weight.momentum);
    add(own_name(concat(kTakenBase, ".", name)), weight, weight.base);
    add(own_name(concat(kOwnResidual, ".", name)), weight, weight.residual);
  }
  return entries;
}

PartLoad DecoupledState::to_load(std::vector<checkpoint::Entry> own,
                                 const checkpoint::Summary& saved) {
  std::set<std::string> names;
  for (const checkpoint::TensorSummary& tensor : saved.tensors) names.insert(tensor.name);
  PartLoad load{.ignored = {kLearnerPrefix}};
  std::vector<std::function<void()>> later;
  for (checkpoint::Entry& entry : own) {
    const Weight* const weight = find(entry.name);
    const std::string mine = own_name(entry.name);
    if (weight != nullptr) {
      checkpoint::Entry common = entry;
      common.local = weight->common;
      load.entries.push_back(std::move(common));
      const bool has_base = names.contains(own_name(concat(kTakenBase, ".", entry.name)));
      if (!has_base) later.push_back([weight] { weight->base.copy_(weight->common); });
      if (!names.contains(mine)) {  // a learner that the run had not
        later.push_back([weight] { weight->live().copy_(weight->common); });
        continue;
      }
    }
    if (names.contains(mine)) entry.name = mine;
    load.entries.push_back(std::move(entry));
  }
  for (checkpoint::Entry& entry : outer_entries()) {
    if (names.contains(entry.name)) load.entries.push_back(std::move(entry));
  }
  load.finish = [later = std::move(later)] {
    const c10::NoGradGuard no_grad;
    for (const auto& step : later) step();
  };
  return load;
}

void DecoupledState::begin() {
  const c10::NoGradGuard no_grad;
  for (const Weight& weight : weights_) {
    weight.base.copy_(weight.live());
    weight.common.copy_(weight.live());
  }
}

}  // namespace trireme::train
