// What a learner's rank saves and loads.
#include <functional>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/train/learner/flat_weights.h"
#include "trireme/train/learner/learner_state.h"

namespace trireme::train {

std::string LearnerState::own_name(const std::string& name) const {
  return concat(kLearnerPrefix, learners_.rank(), ".", name);
}

// The model's names are those of the common weights, which is what other programs and runs without
// learners read. Learner 0's other tensors have the names that they have without learners.
std::vector<checkpoint::Entry> LearnerState::to_save(std::vector<checkpoint::Entry> own) {
  const c10::NoGradGuard no_grad;
  await();
  if (graph_) find_common();
  const std::map<std::string, const Weight*> weights = by_name();
  const std::set<std::string> frozen = frozen_names();
  std::vector<checkpoint::Entry> entries;
  for (checkpoint::Entry& entry : own) {
    const auto found = weights.find(entry.name);
    if (found != weights.end()) {
      checkpoint::Entry common = entry;
      const Weight& weight = *found->second;
      const at::Tensor& values =
          graph_ ? common_[static_cast<size_t>(&weight - weights_.data())] : weight.anchor;
      common.local = values.to(entry.local.scalar_type());
      entries.push_back(std::move(common));
      entry.name = own_name(entry.name);
    } else if (learners_.rank() > 0 && !frozen.contains(entry.name)) {
      entry.name = own_name(entry.name);
    }
    entries.push_back(std::move(entry));
  }
  std::ranges::move(outer_entries(), std::back_inserter(entries));
  common_.clear();
  return entries;
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
      if (config_.outer.method == OuterMethod::kPushSum) add(own + kBase, weight, weight.anchor);
      continue;
    }
    if (weight.anchor.scalar_type() != weight.shard->weights.scalar_type()) {
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
    const auto found = weights.find(entry.name);
    if (found == weights.end()) {
      if (names.contains(mine)) entry.name = mine;
      load.entries.push_back(std::move(entry));
      continue;
    }
    const Weight& weight = *found->second;
    const bool has_wide_anchor = names.contains(concat(kLearnerPrefix, kAnchor, ".", entry.name));
    const bool is_wider = graph_ || weight.anchor.scalar_type() != entry.local.scalar_type();
    if (names.contains(mine)) {
      checkpoint::Entry common = entry;
      common.local = is_wider ? at::empty_like(entry.local) : weight.anchor;
      const bool has_base = names.contains(own_name(concat(kBase, ".", entry.name)));
      if (graph_ && !has_base) {
        later.push_back([&weight] { weight.anchor.copy_(weight.live); });
      } else if (is_wider && !graph_ && !has_wide_anchor) {
        later.push_back([&weight, values = common.local] { weight.anchor.copy_(values); });
      }
      load.entries.push_back(std::move(common));
      entry.name = mine;
    } else if (has_wide_anchor || names.contains(concat(kLearnerPrefix, "0.", entry.name))) {
      // A learner that the run had not: it begins with the common weights.
      later.push_back([this, &weight, has_wide_anchor] {
        if (!has_wide_anchor) weight.anchor.copy_(weight.shard->weights);
        weight.live.copy_(weight.anchor);
        write_back(weight);
      });
    } else {
      later.push_back([&weight] { weight.anchor.copy_(weight.live); });
    }
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

// Makes room for the sum that was under way, if there was one.
void LearnerState::restore_exchange(const std::set<std::string>& saved) {
  fragment_.reset();
  arrival_.reset();
  const std::string prefix = concat(kLearnerPrefix, kMean, ".");
  for (const std::string& name : saved) {
    if (!name.starts_with(prefix)) continue;
    fragment_ = fragments_by_name(state_.model(), config_.outer).at(name.substr(prefix.size()));
    arrival_.emplace();
    break;
  }
  for (Group& group : groups_) {
    group.mean.reset();
    if (!fragment_) continue;
    std::vector<at::Tensor> anchors;
    for (const size_t i : of_fragment(group, *fragment_)) anchors.push_back(weights_[i].anchor);
    group.mean = flattened(anchors, wide_options());
    group.mean_states = at::empty({0}, group.mean.options());
  }
}

std::map<std::string, const LearnerState::Weight*> LearnerState::by_name() const {
  std::map<std::string, const Weight*> weights;
  for (const Weight& weight : weights_) weights[weight.shard->name] = &weight;
  return weights;
}

std::set<std::string> LearnerState::frozen_names() const {
  std::set<std::string> names;
  for (const parallel::Shard& shard : state_.model().shards()) {
    if (!shard.is_trained) names.insert(shard.name);
  }
  return names;
}

}  // namespace trireme::train
