// Learners that exchange with neighbours only.
#include <algorithm>
#include <iterator>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/flat_share.h"
#include "trireme/parallel/learner/graph_check.h"
#include "trireme/parallel/learner/mixing.h"
#include "trireme/train/learner/flat_weights.h"
#include "trireme/train/learner/learner_state.h"
#include "trireme/train/numerics/loss_sum.h"

namespace trireme::train {
namespace {

parallel::Correction correction_of(const OuterConfig& outer) {
  return outer.method == OuterMethod::kD2 ? parallel::Correction::kD2
                                          : parallel::Correction::kGradientTracking;
}

}  // namespace

// They follow from the graph alone, so no checkpoint has them.
const parallel::LearnerWeights& LearnerState::push_sum_weights(int fragment, int64_t number) {
  auto [found, is_new] = mixed_.try_emplace(fragment);
  Mixed& mixed = found->second;
  if (is_new || mixed.number > number) mixed = {0, parallel::even_weights(*graph_)};
  for (; mixed.number < number; ++mixed.number) {
    parallel::advance(mixed.weights, *graph_, mixed.number);
  }
  return mixed.weights;
}

// One tensor, or two with a tracker.
std::vector<at::Tensor> LearnerState::values_to_mix(const Weight& weight,
                                                    double share_of_sum) const {
  const at::Tensor now = weight.live.detach().to(weight.anchor.scalar_type());
  if (weight.correction.defined()) {
    return parallel::values_to_mix(correction_of(config_.outer),
                                   {now, weight.anchor, weight.correction});
  }
  // With a small share of the sum, a learner's steps must change it as much as others' do.
  return {share_of_sum == 1 ? now : weight.anchor + (now - weight.anchor).div_(share_of_sum)};
}

void LearnerState::take_mixed(const Weight& weight, const std::vector<at::Tensor>& mixed) {
  if (weight.correction.defined()) {
    const at::Tensor now = weight.live.detach().to(weight.anchor.scalar_type());
    weight.correction.copy_(parallel::next_correction(
        correction_of(config_.outer), {now, weight.anchor, weight.correction}, mixed));
  }
  set(weight, mixed.front());
  weight.anchor.copy_(weight.live);
}

LearnerState::Arrival LearnerState::mix(int fragment, int64_t number, std::vector<double> notes) {
  TRIREME_ASSERT(graph_, "learners without a graph");
  const c10::NoGradGuard no_grad;
  const parallel::LearnerWeights weights = push_sum_weights(fragment, number);
  const double share_of_sum = weights[static_cast<size_t>(learners_.rank())];
  groups_[0].exact->start(at::empty({0}, wide_options()), std::move(notes));
  double bytes = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<size_t> mixed = of_fragment(groups_[g], fragment);
    std::vector<at::Tensor> values;
    size_t num_values = 0;  // of each weight
    for (const size_t i : mixed) {
      const std::vector<at::Tensor> its = values_to_mix(weights_[i], share_of_sum);
      num_values = its.size();
      std::ranges::copy(its, std::back_inserter(values));
    }
    const at::Tensor flat = flattened(values, wide_options());
    const at::Tensor share = parallel::view_share(flat, *groups_[g].replicas).contiguous();
    parallel::LearnerWeights after = weights;
    if (share.numel() > 0) {
      parallel::mix(share, *graph_, number, after, learners_);
      parallel::view_share(flat, *groups_[g].replicas).copy_(share);
      bytes += static_cast<double>(
          parallel::sent_bytes(graph_->round(number), learners_.rank(),
                               share.numel() * static_cast<int64_t>(share.element_size())));
    }
    parallel::gather_shares(flat, *groups_[g].replicas);
    int64_t begin = 0;
    for (const size_t i : mixed) {
      std::vector<at::Tensor> its;
      while (its.size() < num_values) its.push_back(take(flat, weights_[i].anchor, begin));
      take_mixed(weights_[i], its);
    }
  }
  num_mixed_[fragment] = number + 1;
  Arrival arrival{.notes = groups_[0].exact->finish().notes};
  bytes += static_cast<double>(groups_[0].exact->sent_bytes());
  count_sent(bytes);
  return arrival;
}

// Sums what the ranks of this learner have sent.
void LearnerState::count_sent(double bytes) {
  sent_bytes_ = 0;
  for (const double each : gather(ranks_, {bytes})) sent_bytes_ += static_cast<int64_t>(each);
}

// The mean of the learners' weights, one for each of weights_, which is what a checkpoint has as
// the model.
std::vector<at::Tensor> LearnerState::find_common() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> common(weights_.size());
  for (Group& group : groups_) {
    std::vector<at::Tensor> values;
    for (const size_t i : group.weights) {
      const Weight& weight = weights_[i];
      const double share = push_sum_weights(
          weight.fragment, num_mixed_[weight.fragment])[static_cast<size_t>(learners_.rank())];
      values.push_back(share == 1 ? weight.live
                                  : weight.live.to(weight.anchor.scalar_type()) * share);
    }
    const at::Tensor mean = mean_over_learners(*group.exact, values);
    int64_t begin = 0;
    for (const size_t i : group.weights) common[i] = take(mean, weights_[i].anchor, begin);
  }
  return common;
}

LearnerState::Arrival LearnerState::agree(std::vector<double> notes) {
  const c10::NoGradGuard no_grad;
  groups_[0].exact->start(at::empty({0}, wide_options()), std::move(notes));
  Arrival arrival{.notes = groups_[0].exact->finish().notes};
  const std::vector<at::Tensor> common = find_common();
  average_buffers();
  for (size_t i = 0; i < weights_.size(); ++i) {
    set(weights_[i], common[i]);
    weights_[i].anchor.copy_(weights_[i].live);
  }
  double bytes = 0;
  for (const Group& group : groups_) bytes += static_cast<double>(group.exact->sent_bytes());
  count_sent(bytes);
  return arrival;
}

}  // namespace trireme::train
