#include "trireme/train/learner/learner_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/mixing.h"
#include "trireme/parallel/learner/named_graph.h"
#include "trireme/train/learner/flat_weights.h"
#include "trireme/train/learner/outer_rule.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

// Notes of an exchange that come before the caller's.
constexpr size_t kSquares = 0;  // of the difference, by its weight
constexpr size_t kWeight = 1;   // 0: it is not finite
constexpr size_t kOwnNotes = 2;

constexpr int kTagsOfGroup = 4;

// The dtype in which learners compute with weights of `dtype`.
at::ScalarType wide(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

double squares_of(const at::Tensor& values) {
  return values.square().sum(at::kDouble).item<double>();
}

// The optimizer's tensors of each parameter, by the state's name.
std::map<std::string, std::map<std::string, at::Tensor>> states_by_name(
    const Optimizer& optimizer) {
  std::map<std::string, std::map<std::string, at::Tensor>> states;
  for (const checkpoint::Entry& entry : optimizer.state()) {
    const size_t dot = entry.name.find('.');
    states[entry.name.substr(dot + 1)][entry.name.substr(0, dot)] = entry.local;
  }
  return states;
}

}  // namespace

LearnerState::LearnerState(const RunConfig& config, TrainingState& state,
                           comm::Communicator& learners,
                           std::optional<parallel::LearnerGraph> graph,
                           parallel::ShareCarrier* carrier)
    : config_(config),
      state_(state),
      learners_(learners),
      ranks_(state.model().mesh().world()),
      alone_(learners.split(learners.rank(), 0, "alone")),
      graph_(std::move(graph)),
      carrier_(carrier) {
  if (graph_ && parallel::is_graph_file(config.outer.graph)) fingerprint_ = graph_->fingerprint();
  if (config.outer.method == OuterMethod::kD2) graph_ = parallel::graph_of_d2(*graph_);
  const ParallelModel& model = state_.model();
  const std::map<std::string, int> fragments = fragments_by_name(model, config.outer);
  auto states = states_by_name(state_.optimizer());
  const bool has_momentum = outer_options(config.outer).momentum != 0;
  for (const parallel::Shard& shard : model.shards()) {
    if (!shard.is_trained) continue;
    Weight weight;
    weight.shard = &shard;
    weight.live = shard.weights;
    for (auto& [name, tensor] : states[shard.name]) {
      if (name == kMasterState) {
        weight.live = tensor;
        weight.has_master = true;
      } else if (config.outer.states == OuterStates::kAverage && tensor.is_floating_point()) {
        weight.states.push_back(tensor);
      }
    }
    weight.anchor = weight.live.detach().to(wide(weight.live.scalar_type()), false, /*copy=*/true);
    if (has_momentum) weight.momentum = at::zeros_like(weight.anchor);
    if (loses(config.outer)) {
      weight.residual = at::zeros_like(weight.anchor, at::TensorOptions(at::kFloat));
    }
    if (config.outer.corrects()) weight.correction = at::zeros_like(weight.anchor);
    if (config.outer.is_decoupled()) weight.late = at::zeros_like(weight.anchor);
    weight.fragment = fragments.at(shard.name);
    weight.counts = model.counts(shard);
    weights_.push_back(std::move(weight));
  }
  make_groups();
}

// Weights that the tensor axis does not cut have more replicas than others, and experts lie on
// other ranks. Where one message had both, its scales would differ between replicas. ZeRO cuts
// weights at other places on each tensor rank, so there each rank sends its own part.
void LearnerState::make_groups() {
  const ParallelModel& model = state_.model();
  const std::vector<std::string_view> copies = replica_axes(config_.parallel.zero);
  std::vector<std::string_view> all_copies = copies;
  if (config_.parallel.zero == 0) {
    std::ranges::copy(cutting_axes(), std::back_inserter(all_copies));
  }
  comm::Communicator& of_cut = group_of(model.mesh(), copies, "data");
  comm::Communicator& of_whole = group_of(model.mesh(), all_copies, "data");
  const auto sums = std::make_shared<parallel::SumsGroup>(learners_);
  const auto add = [&](comm::Communicator& replicas, const auto& has) {
    const int tag = kTagsOfGroup * static_cast<int>(groups_.size());
    Group& made = groups_.emplace_back();
    made.replicas = &replicas;
    made.differences = std::make_unique<parallel::DifferenceExchange>(
        learners_, replicas, tag, wire_form(config_.outer), carrier_, sums);
    made.exact = std::make_unique<parallel::DifferenceExchange>(
        learners_, replicas, tag + 2, parallel::WireForm(), nullptr, sums);
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (has(*weights_[i].shard)) made.weights.push_back(i);
    }
  };
  const auto is_expert = [&](const parallel::Shard& shard) { return model.is_expert(shard.name); };
  const auto is_cut = [](const parallel::Shard& shard) {
    return shard.layout.shape() != shard.layout.whole_shape();
  };
  add(of_whole, [&](const auto& shard) { return !is_expert(shard) && !is_cut(shard); });
  if (model.mesh().position(cutting_axes()).count > 1) {
    add(of_cut, [&](const auto& shard) { return !is_expert(shard) && is_cut(shard); });
  }
  const bool has_experts = std::ranges::any_of(
      model.parameter_names(), [&](const std::string& name) { return model.is_expert(name); });
  if (has_experts) add(*alone_, is_expert);
}

at::TensorOptions LearnerState::wide_options() const {
  return at::TensorOptions(config_.device).dtype(wide(config_.dtype()));
}

std::vector<std::vector<double>> LearnerState::sum_gradients(std::vector<double> notes) {
  const c10::NoGradGuard no_grad;
  std::vector<std::vector<double>> all_notes;
  for (Group& group : groups_) {
    std::vector<at::Tensor> gradients;
    for (const size_t i : group.weights) {
      if (weights_[i].shard->gradient.defined()) gradients.push_back(weights_[i].shard->gradient);
    }
    group.exact->start(flattened(gradients, wide_options()),
                       &group == &groups_.front() ? notes : std::vector<double>());
    auto [sum, found, residual] = group.exact->finish();
    int64_t begin = 0;
    for (const at::Tensor& gradient : gradients) gradient.copy_(take(sum, gradient, begin));
    if (&group == &groups_.front()) all_notes = std::move(found);
  }
  average_buffers();
  return all_notes;
}

// Of tensors of equal shapes, one after the other.
at::Tensor LearnerState::mean_over_learners(parallel::DifferenceExchange& exchange,
                                            const std::vector<at::Tensor>& tensors) const {
  exchange.start(flattened(tensors, wide_options()), {});
  return exchange.finish().sum.div_(learners_.size());
}

// Running statistics and what routers have learned.
void LearnerState::average_buffers() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> buffers;
  for (const auto& [name, buffer] : state_.model().buffers()) {
    if (buffer.is_floating_point()) buffers.push_back(buffer);
  }
  if (buffers.empty()) return;
  const at::Tensor mean = mean_over_learners(*groups_.front().exact, buffers);
  int64_t begin = 0;
  for (const at::Tensor& buffer : buffers) buffer.copy_(take(mean, buffer, begin));
}

void LearnerState::follow() {
  const c10::NoGradGuard no_grad;
  for (const Weight& weight : weights_) weight.anchor.copy_(weight.live);
}

std::vector<size_t> LearnerState::of_fragment(const Group& group, int fragment) const {
  std::vector<size_t> found;
  std::ranges::copy_if(group.weights, std::back_inserter(found),
                       [&](size_t i) { return weights_[i].fragment == fragment; });
  return found;
}

// With what this learner could not say before.
at::Tensor LearnerState::weighted_difference(const Weight& weight) const {
  // To what the last exchange has left of the anchor in weights of fewer bits.
  const at::Tensor begun = weight.anchor.to(weight.live.scalar_type());
  at::Tensor difference = begun.to(weight.anchor.scalar_type()) - weight.live;
  if (weight_ != 1) difference.mul_(weight_);
  return late_weight_ > 0 ? difference.add_(weight.late) : difference;
}

LearnerState::Flat LearnerState::differences_of(const std::vector<size_t>& weights) const {
  Flat flat;
  std::vector<at::Tensor> differences, residuals;
  for (const size_t i : weights) {
    const Weight& weight = weights_[i];
    differences.push_back(weighted_difference(weight));
    const double squares = squares_of(differences.back());
    flat.is_finite = flat.is_finite && std::isfinite(squares);
    if (weight.counts) flat.squares += squares;
    if (weight.residual.defined()) residuals.push_back(weight.residual);
  }
  if (loses(config_.outer)) {
    flat.residual = flattened(residuals, wide_options().dtype(at::kFloat));
  }
  flat.values = flattened(differences, wide_options());
  return flat;
}

void LearnerState::start(int fragment, std::vector<double> notes, double weight) {
  TRIREME_ASSERT(!fragment_, "fragment ", fragment, " before another has arrived");
  const c10::NoGradGuard no_grad;
  fragment_ = fragment;
  weight_ = weight;
  std::vector<Flat> flats;
  bool is_finite = true;
  for (const Group& group : groups_) {
    flats.push_back(differences_of(of_fragment(group, fragment)));
    is_finite = is_finite && flats.back().is_finite;
  }
  const std::vector<double> lost = gather(ranks_, {is_finite ? 0.0 : 1.0});
  is_lost_ = std::ranges::max(lost) > 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (is_lost_) {
      flats[i].squares = 0;
      flats[i].values.zero_();
      if (flats[i].residual.defined()) flats[i].residual.zero_();
    }
    const double all = weight_ + late_weight_;
    std::vector<double> with_notes = {flats[i].squares / all, is_lost_ ? 0.0 : all};
    if (i == 0) std::ranges::copy(notes, std::back_inserter(with_notes));
    groups_[i].differences->start(flats[i].values, std::move(with_notes), flats[i].residual);
    std::vector<at::Tensor> states;
    for (const size_t at : of_fragment(groups_[i], fragment)) {
      std::ranges::copy(weights_[at].states, std::back_inserter(states));
    }
    const at::Tensor values = flattened(states, wide_options());
    groups_[i].exact->start(is_lost_ ? at::zeros_like(values) : values, {});
  }
}

void LearnerState::await() {
  if (!fragment_ || arrival_) return;
  Arrival arrival;
  std::vector<double> mine(2);  // of the spread, bytes sent
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    auto [sum, notes, residual] = group.differences->finish();
    double squares = 0, weight = 0;
    std::vector<int> excluded;
    for (size_t learner = 0; learner < notes.size(); ++learner) {
      squares += notes[learner][kSquares];
      weight += notes[learner][kWeight];
      if (notes[learner][kWeight] == 0) excluded.push_back(static_cast<int>(learner));
    }
    if (weight == 0) weight = 1;  // of nobody
    group.mean = sum.div_(weight);
    group.mean_states = group.exact->finish().sum.div_(weight);
    mine[0] += squares / weight;
    int64_t begin = 0, begin_of_residual = 0;
    for (const size_t i : of_fragment(group, *fragment_)) {
      const Weight& weight = weights_[i];
      const at::Tensor mean = take(group.mean, weight.anchor, begin);
      if (weight.counts) mine[0] -= squares_of(mean);
      if (weight.residual.defined()) {
        weight.residual.copy_(take(residual, weight.residual, begin_of_residual));
      }
    }
    mine[1] += static_cast<double>(group.differences->sent_bytes() + group.exact->sent_bytes());
    if (g > 0) continue;
    for (std::vector<double>& each : notes) {
      arrival.notes.emplace_back(each.begin() + kOwnNotes, each.end());
    }
    arrival.excluded = std::move(excluded);
  }
  const std::vector<double> all = gather(ranks_, mine);
  double squares = 0;
  sent_bytes_ = 0;
  for (size_t i = 0; i < all.size(); i += mine.size()) {
    squares += all[i];
    sent_bytes_ += static_cast<int64_t>(all[i + 1]);
  }
  arrival.spread = std::sqrt(std::max(squares, 0.0));  // rounding may take it below 0
  arrival_ = std::move(arrival);
}

LearnerState::Arrival LearnerState::finish(double own_share, bool is_mean) {
  TRIREME_ASSERT(fragment_, "the end of no exchange");
  const c10::NoGradGuard no_grad;
  await();
  const auto options = is_mean ? parallel::OuterOptimizerOptions() : outer_options(config_.outer);
  for (Group& group : groups_) apply(group, options, is_lost_ ? 0 : own_share);
  forget_late();
  if (*fragment_ == config_.outer.fragments - 1) average_buffers();
  fragment_.reset();
  is_lost_ = false;
  Arrival arrival = *std::exchange(arrival_, std::nullopt);
  return arrival;
}

void LearnerState::apply(Group& group, const parallel::OuterOptimizerOptions& options,
                         double own_share) {
  int64_t begin = 0, begin_of_states = 0;
  for (const size_t i : of_fragment(group, *fragment_)) {
    const Weight& weight = weights_[i];
    parallel::outer_step(weight.anchor, weight.momentum, take(group.mean, weight.anchor, begin),
                         options);
    const at::Tensor values = weight.live.detach().to(weight.anchor.scalar_type());
    parallel::mix_with_anchor(values, weight.anchor, own_share);
    set(weight, values);
    for (const at::Tensor& state : weight.states) {
      state.copy_(take(group.mean_states, state, begin_of_states));
    }
  }
  // A frozen variance would stay zero, and its momentum is what ranks go on exchanging.
  const bool is_frozen = !state_.gets_gradients();
  if (is_lost_ && config_.outer.states == OuterStates::kKeep && !is_frozen) {
    reset_states(*fragment_);
  }
  group.mean.reset();
  group.mean_states.reset();
}

// What is not finite would spoil the weights again.
void LearnerState::reset_states(int fragment) {
  auto states = states_by_name(state_.optimizer());
  for (const Weight& weight : weights_) {
    if (weight.fragment != fragment) continue;
    for (auto& [name, tensor] : states[weight.shard->name]) {
      if (name != kMasterState) tensor.zero_();
    }
  }
}

void LearnerState::set(const Weight& weight, const at::Tensor& values) {
  weight.live.detach().copy_(values);
  write_back(weight);
}

void LearnerState::write_back(const Weight& weight) const {
  if (weight.has_master) {
    weight.shard->weights.detach().copy_(weight.live);
  }
}

}  // namespace trireme::train
