#include "trireme/train/learner/learner_state.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/outer_optimizer.h"
#include "trireme/train/learner/flat_weights.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/parallel/run_layout.h"
#include "trireme/train/state/run_state.h"

namespace trireme::train {
namespace {

// Notes of an exchange that come before the caller's.
constexpr size_t kSquares = 0;
constexpr size_t kIsLost = 1;
constexpr size_t kOwnNotes = 2;

parallel::OuterOptimizerOptions outer_options(const OuterConfig& outer) {
  if (outer.method != OuterMethod::kDiloco) return {};
  return {.learning_rate = outer.learning_rate,
          .momentum = outer.momentum,
          .nesterov = outer.optimizer == OuterOptimizer::kNesterov};
}

parallel::WireForm wire_form(const OuterConfig& outer) {
  return {.code = outer.wire, .kept = outer.kept};
}

bool loses(const OuterConfig& outer) {
  return outer.wire != parallel::WireCode::kFloat32 || outer.kept < 1;
}

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
                           std::optional<parallel::LearnerGraph> graph)
    : config_(config),
      state_(state),
      learners_(learners),
      ranks_(state.model().mesh().world()),
      alone_(learners.split(learners.rank(), 0, "alone")),
      graph_(std::move(graph)) {
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
      } else if (config.outer.states == OuterStates::kAverage && tensor.is_floating_point()) {
        weight.states.push_back(tensor);
      }
    }
    weight.anchor = weight.live.detach().to(wide(weight.live.scalar_type()), false, /*copy=*/true);
    if (has_momentum) weight.momentum = at::zeros_like(weight.anchor);
    if (loses(config.outer)) {
      weight.residual = at::zeros_like(weight.anchor, at::TensorOptions(at::kFloat));
    }
    weight.fragment = fragments.at(shard.name);
    weight.counts = model.counts(shard);
    weights_.push_back(std::move(weight));
  }
  // Experts lie on other ranks than all else, so their replicas are others.
  comm::Communicator& replicas = group_of(model.mesh(), replica_axes(config.parallel.zero), "data");
  const bool has_experts = std::ranges::any_of(
      model.parameter_names(), [&](const std::string& name) { return model.is_expert(name); });
  for (const bool are_experts : {false, true}) {
    if (are_experts && !has_experts) break;
    comm::Communicator& group = are_experts ? *alone_ : replicas;
    const auto make_exchange = [&](int tag, const parallel::WireForm& form) {
      return std::make_unique<parallel::DifferenceExchange>(learners_, group,
                                                            tag + (are_experts ? 8 : 0), form);
    };
    Group made;
    made.replicas = &group;
    made.differences = make_exchange(0, wire_form(config.outer));
    made.exact = make_exchange(4, {});
    for (size_t i = 0; i < weights_.size(); ++i) {
      if (model.is_expert(weights_[i].shard->name) == are_experts) made.weights.push_back(i);
    }
    groups_.push_back(std::move(made));
  }
}

at::TensorOptions LearnerState::wide_options() const {
  return at::TensorOptions(config_.device).dtype(wide(config_.dtype()));
}

void LearnerState::average_gradients() {
  const c10::NoGradGuard no_grad;
  for (Group& group : groups_) {
    std::vector<at::Tensor> gradients;
    for (const size_t i : group.weights) {
      if (weights_[i].shard->gradient.defined()) gradients.push_back(weights_[i].shard->gradient);
    }
    if (gradients.empty()) continue;
    group.exact->start(flattened(gradients, wide_options()), {});
    const at::Tensor sum = group.exact->finish().sum.div_(learners_.size());
    int64_t begin = 0;
    for (const at::Tensor& gradient : gradients) gradient.copy_(take(sum, gradient, begin));
  }
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

LearnerState::Flat LearnerState::differences_of(const std::vector<size_t>& weights) const {
  Flat flat;
  std::vector<at::Tensor> differences, residuals;
  for (const size_t i : weights) {
    const Weight& weight = weights_[i];
    differences.push_back(weight.anchor - weight.live);
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

void LearnerState::start(int fragment, std::vector<double> notes) {
  TRIREME_ASSERT(!fragment_, "fragment ", fragment, " before another has arrived");
  const c10::NoGradGuard no_grad;
  fragment_ = fragment;
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
    std::vector<double> with_notes = {flats[i].squares, is_lost_ ? 1.0 : 0.0};
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
    double squares = 0;
    std::vector<int> excluded;
    for (size_t learner = 0; learner < notes.size(); ++learner) {
      squares += notes[learner][kSquares];
      if (notes[learner][kIsLost] != 0) excluded.push_back(static_cast<int>(learner));
    }
    const auto active = static_cast<double>(notes.size() - excluded.size());
    group.mean = sum.div_(std::max(active, 1.0));
    group.mean_states = group.exact->finish().sum.div_(std::max(active, 1.0));
    mine[0] += squares / std::max(active, 1.0);
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

LearnerState::Arrival LearnerState::finish(double own_share) {
  TRIREME_ASSERT(fragment_, "the end of no exchange");
  const c10::NoGradGuard no_grad;
  await();
  for (Group& group : groups_) apply(group, is_lost_ ? 0 : own_share);
  fragment_.reset();
  is_lost_ = false;
  Arrival arrival = *std::exchange(arrival_, std::nullopt);
  return arrival;
}

void LearnerState::apply(Group& group, double own_share) {
  int64_t begin = 0, begin_of_states = 0;
  for (const size_t i : of_fragment(group, *fragment_)) {
    const Weight& weight = weights_[i];
    parallel::outer_step(weight.anchor, weight.momentum, take(group.mean, weight.anchor, begin),
                         outer_options(config_.outer));
    const at::Tensor values = weight.live.detach().to(weight.anchor.scalar_type());
    parallel::mix_with_anchor(values, weight.anchor, own_share);
    set(weight, values);
    for (const at::Tensor& state : weight.states) {
      state.copy_(take(group.mean_states, state, begin_of_states));
    }
  }
  if (is_lost_ && config_.outer.states == OuterStates::kKeep) reset_states(*fragment_);
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
  if (!weight.live.is_same(weight.shard->weights)) {
    weight.shard->weights.detach().copy_(weight.live);
  }
}

}  // namespace trireme::train
