// What a learner's rank saves and loads.
#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/train/learner/flat_weights.h"
#include "trireme/train/learner/learner_state.h"
#include "trireme/train/parallel/stage_costs.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

at::Tensor bytes_of(const std::string& text) {
  return at::tensor(std::vector<uint8_t>(text.begin(), text.end()), at::kByte);
}

}  // namespace

std::string LearnerState::own_name(const std::string& name) const {
  return concat(kLearnerPrefix, learners_.rank(), ".", name);
}

// The model's names are those of the common weights, which is what other programs and runs without
// learners read. Learner 0's other tensors have the names that they have without learners.
std::vector<checkpoint::Entry> LearnerState::to_save(std::vector<checkpoint::Entry> own) {
  const c10::NoGradGuard no_grad;
  await();
  const std::vector<at::Tensor> means = graph_ ? find_common() : std::vector<at::Tensor>();
  const std::map<std::string, const Weight*> weights = by_name();
  const std::set<std::string> frozen = frozen_names();
  std::vector<checkpoint::Entry> entries;
  for (checkpoint::Entry& entry : own) {
    const auto found = weights.find(weight_of(entry.name));
    if (found != weights.end()) {  // a weight or its master
      checkpoint::Entry common = entry;
      const Weight& weight = *found->second;
      const at::Tensor& values =
          graph_ ? means[static_cast<size_t>(&weight - weights_.data())] : weight.anchor;
      common.local = values.to(entry.local.scalar_type());
      entries.push_back(std::move(common));
      entry.name = own_name(entry.name);
    } else if (learners_.rank() > 0 && !frozen.contains(entry.name)) {
      entry.name = own_name(entry.name);
    }
    entries.push_back(std::move(entry));
  }
  std::ranges::move(outer_entries(), std::back_inserter(entries));
  if (!fingerprint_.empty()) {
    std::ranges::move(graph_entries(bytes_of(fingerprint_)), std::back_inserter(entries));
  }
  return entries;
}

std::vector<checkpoint::Entry> LearnerState::graph_entries(const at::Tensor& fingerprint) const {
  return whole_entries({{concat(kLearnerPrefix, kGraph), fingerprint}});
}

// A file's name says less than what is in it.
void LearnerState::expect_same_graph(const std::set<std::string>& saved, PartLoad& load,
                                     std::vector<std::function<void()>>& later) const {
  const std::vector<std::string> allowed = split_list(config_.resume.allow, ',');
  const bool may_change = std::ranges::any_of(allowed, [](const std::string& key) {
    return key == "outer.graph" || key == "parallel.learners";
  });
  if (fingerprint_.empty() || may_change || !saved.contains(concat(kLearnerPrefix, kGraph))) return;
  const at::Tensor before = at::empty_like(bytes_of(fingerprint_));
  std::ranges::move(graph_entries(before), std::back_inserter(load.entries));
  later.push_back([this, before] {
    TRIREME_CHECK(
        before.equal(bytes_of(fingerprint_)), "outer.graph is \"", shown(config_.outer.graph),
        "\", whose file is another one than when the checkpoint was saved; bring that one "
        "back, or go on with this one with --resume.allow=outer.graph");
  });
}

// What learners have in common beside the weights, each under "learners.<what>.<parameter>".
std::vector<checkpoint::Entry> LearnerState::outer_entries() const {
  std::vector<checkpoint::Entry> entries;
  const auto add = [&](const std::string& what, const Weight& weight, const at::Tensor& values) {
    entries.push_back({concat(kLearnerPrefix, what, ".", weight.shard->name), values,
                       weight.shard->layout, weight.shard->rank});
  };
  const std::string own = std::to_string(learners_.rank()) + ".";
  for (const Weight& weight : weights_) {
    if (graph_) {
      if (config_.outer.method == OuterMethod::kPushSum ||
          config_.outer.method == OuterMethod::kGradientTracking) {
        add(own + kBase, weight, weight.anchor);
      }
      if (weight.correction.defined()) add(own + correction_name(), weight, weight.correction);
      continue;
    }
    if (!weight.has_master && weight.anchor.scalar_type() != weight.live.scalar_type()) {
      add(kAnchor, weight, weight.anchor);
    }
    if (weight.momentum.defined()) add(kMomentum, weight, weight.momentum);
    if (weight.residual.defined()) {
      add(own + kResidual, weight, weight.residual);
    }
  }
  if (!fragment_) return entries;
  for (const Group& group : groups_) {
    int64_t begin = 0;
    for (const size_t i : of_fragment(group, *fragment_)) {
      add(kMean, weights_[i], take(group.mean, weights_[i].anchor, begin));
    }
  }
  return entries;
}

PartLoad LearnerState::to_load(std::vector<checkpoint::Entry> own,
                               const checkpoint::Summary& saved) {
  std::set<std::string> names;
  for (const checkpoint::TensorSummary& tensor : saved.tensors) names.insert(tensor.name);
  restore_exchange(names);
  PartLoad load{.ignored = {kLearnerPrefix}};
  const std::map<std::string, const Weight*> weights = by_name();
  std::vector<std::function<void()>> later;
  for (checkpoint::Entry& entry : own) {
    const std::string mine = own_name(entry.name);
    const auto found = weights.find(weight_of(entry.name));
    if (found == weights.end()) {
      if (names.contains(mine)) entry.name = mine;
      load.entries.push_back(std::move(entry));
      continue;
    }
    const Weight& weight = *found->second;
    const bool is_master = entry.name != weight.shard->name;
    const bool is_live = is_master == weight.has_master;
    const bool has_anchor = names.contains(concat(kLearnerPrefix, kAnchor, ".", entry.name));
    if (names.contains(mine)) {
      checkpoint::Entry common = entry;
      const bool fits = weight.anchor.scalar_type() == entry.local.scalar_type();
      common.local = is_live && fits && !graph_ ? weight.anchor : at::empty_like(entry.local);
      load.entries.push_back(std::move(common));
      entry.name = mine;
      if (is_live && graph_ && !names.contains(own_name(concat(kBase, ".", weight.shard->name)))) {
        later.push_back([&weight] { weight.anchor.copy_(weight.live); });
      }
    } else if (is_live) {  // a learner that the run had not begins with the common weights
      later.push_back([this, &weight, has_anchor] {
        if (!has_anchor) weight.anchor.copy_(weight.live);
        set(weight, weight.anchor);
      });
    }
    load.entries.push_back(std::move(entry));
  }
  expect_same_graph(names, load, later);
  const bool has_all = has_corrections(names);
  const std::string correction = own_name(correction_name() + ".");
  for (checkpoint::Entry& entry : outer_entries()) {
    if (!has_all && entry.name.starts_with(correction)) continue;
    if (names.contains(entry.name)) load.entries.push_back(std::move(entry));
  }
  load.finish = [later = std::move(later)] {
    const c10::NoGradGuard no_grad;
    for (const auto& step : later) step();
  };
  return load;
}

std::string LearnerState::correction_name() const {
  return concat("outer.", name_of(kOuterMethods, config_.outer.method));
}

// Corrections sum to zero over the learners that have made them, so other ones begin without.
bool LearnerState::has_corrections(const std::set<std::string>& saved) const {
  if (!config_.outer.corrects() || weights_.empty()) return false;
  const auto has = [&](int learner) {
    return std::ranges::any_of(saved, [&](const std::string& name) {
      return name.starts_with(concat(kLearnerPrefix, learner, ".", correction_name(), "."));
    });
  };
  return has(learners_.size() - 1) && !has(learners_.size());
}

// The parameter, if the entry has its weights or its master.
std::string LearnerState::weight_of(const std::string& entry) {
  const std::string prefix = concat(kOptimizerPrefix, kMasterState, ".");
  return entry.starts_with(prefix) ? entry.substr(prefix.size()) : entry;
}

// Makes room for the sum that was under way, if there was one.
void LearnerState::restore_exchange(const std::set<std::string>& saved) {
  fragment_.reset();
  arrival_.reset();
  const std::string prefix = concat(kLearnerPrefix, kMean, ".");
  const std::map<std::string, int> fragments = fragments_by_name(state_.model(), config_.outer);
  std::set<std::string> found;
  for (const std::string& name : saved) {
    if (name.starts_with(prefix)) found.insert(name.substr(prefix.size()));
  }
  if (!found.empty()) {
    const auto first = fragments.find(*found.begin());
    const int fragment = first == fragments.end() ? -1 : first->second;
    const std::set<std::string> frozen = frozen_names();
    for (const auto& [name, its] : fragments) {
      TRIREME_CHECK(found.contains(name) == (its == fragment && !frozen.contains(name)),
                    "the checkpoint was saved while other fragments were exchanged; go on with the "
                    "outer.fragments that it has, or from an earlier checkpoint");
    }
    fragment_ = fragment;
    arrival_ = Arrival{.is_restored = true};
  }
  for (Group& group : groups_) {
    group.mean.reset();
    if (!fragment_) continue;
    std::vector<at::Tensor> anchors;
    for (const size_t i : of_fragment(group, *fragment_)) anchors.push_back(weights_[i].anchor);
    group.mean = flattened(anchors, wide_options()).zero_();
    group.mean_states = at::empty({0}, group.mean.options());
  }
}

std::map<std::string, const LearnerState::Weight*> LearnerState::by_name() const {
  std::map<std::string, const Weight*> weights;
  for (const Weight& weight : weights_) weights[weight.shard->name] = &weight;
  return weights;
}

// Those of the whole model.
std::set<std::string> LearnerState::frozen_names() const {
  return frozen_parameters(config_, config_.task->model().parameters({}));
}

}  // namespace trireme::train
