#include "trireme/train/decoupled_learners.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/objects.h"

namespace trireme::train {
namespace {

using SteadyClock = std::chrono::steady_clock;

int size_of_learner(const RunConfig& config, const comm::Communicator& world) {
  return (world.size() - static_cast<int>(config.parallel.servers)) /
         static_cast<int>(config.parallel.learners);
}

// For servers, which have no model.
std::string to_text(const std::vector<parallel::ServedParameter>& parameters) {
  nlohmann::json all = nlohmann::json::array();
  for (const parallel::ServedParameter& parameter : parameters) {
    all.push_back({{"name", parameter.name},
                   {"rows", parameter.rows},
                   {"is_double", parameter.dtype == at::kDouble}});
  }
  return all.dump();
}

std::vector<parallel::ServedParameter> parse_parameters(const std::string& text) {
  std::vector<parallel::ServedParameter> parameters;
  for (const nlohmann::json& each : nlohmann::json::parse(text)) {
    parameters.push_back({.name = each.at("name"),
                          .rows = each.at("rows"),
                          .dtype = each.at("is_double").get<bool>() ? at::kDouble : at::kFloat});
  }
  return parameters;
}

}  // namespace

DecoupledLearners::DecoupledLearners(const RunConfig& config, comm::Communicator& world,
                                     TrainObserver& observer)
    : ServerStrategy(config, world, observer),
      learner_(world.rank() / size_of_learner(config, world)),
      ranks_(servers_.role().split(trains() ? learner_ : world.rank(), 0,
                                   concat("learner ", learner_))),
      rounds_({.every = config.outer.every,
               .fragments = config.outer.fragments,
               .delay = config.outer.delay}),
      samples_(static_cast<size_t>(config.outer.fragments)) {}

void DecoupledLearners::attach(TrainingState& state) {
  training_ = &state;
  state.use_forms([this, &state] {
    state_ = std::make_unique<DecoupledState>(config_, state, learner_);
    return state_.get();
  });
}

void DecoupledLearners::start(const RunStart& start, TrainingState* /*state*/) {
  const int64_t num_steps = start.num_steps;
  start_ = start_of_root(start);
  start_.num_steps = num_steps;
  std::vector<parallel::ServedParameter> mine;
  if (state_) mine = served_parameters(training_->model().shards());
  const auto parameters = parse_parameters(comm::broadcast_string(world_, to_text(mine), 0));
  servers_.begin(parameters);
  std::vector<CommonWeights> weights;
  hand_out(parameters, weights);
  servers_.start(start_.step, trains() ? parallel::MakePiece()
                                       : make_outer_pieces(config_.outer, std::move(weights)));
}

// Rank 0 has loaded the common weights; the servers get them from it.
void DecoupledLearners::hand_out(const std::vector<parallel::ServedParameter>& parameters,
                                 std::vector<CommonWeights>& weights) {
  const c10::NoGradGuard no_grad;
  const bool has_momentum = outer_options(config_.outer).momentum != 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    CommonWeights common;
    const auto get = [&](const at::Tensor* root) {
      at::Tensor flat = root != nullptr ? root->reshape({-1}).clone()
                                        : at::empty({parameters[i].rows}, parameters[i].dtype);
      world_.broadcast(flat, 0)->wait();
      return flat;
    };
    common.values = get(state_ ? &state_->weights().at(i).common : nullptr);
    if (has_momentum) common.momentum = get(state_ ? &state_->weights().at(i).momentum : nullptr);
    if (!trains()) weights.push_back(std::move(common));
  }
}

void DecoupledLearners::connect(const std::function<bool()>& /*is_stopped*/) {
  versions_.assign(state_->weights().size(), 0);
  if (ranks_->rank() == 0) {
    client_ = servers_.connect();
    num_pushes_ = client_->first_step() - 1;
  }
  // Nobody pushes before all are there: its round would have everybody who is.
  trainers().barrier()->wait();
}

void DecoupledLearners::begin_step(int64_t step) {
  step_ = step;
  waited_ = {};
  taken_.reset();
}

int64_t DecoupledLearners::count_terms(ParallelModel& model, int64_t own) {
  model.use_parts_of_step(config_.parallel.learners);
  for (double& samples : samples_) samples += static_cast<double>(own);
  return own;
}

void DecoupledLearners::push(int fragment) {
  const DecoupledState::Differences found = state_->differences(fragment);
  is_lost_ = !found.is_finite;
  const double weight = std::exchange(samples_[static_cast<size_t>(fragment)], 0);
  if (!client_) return;
  if (is_lost_) ++num_lost_;
  sent_before_ = client_->counts().sent_bytes;
  ++num_pushes_;
  for (const auto& [i, difference] : found.by_weight) {
    const DecoupledState::Weight& of = state_->weights()[i];
    const at::Tensor residual = of.residual.defined() ? of.residual.view({-1}) : at::Tensor();
    client_->push_difference(num_pushes_, static_cast<int64_t>(i), is_lost_ ? 0 : weight,
                             [&](int64_t first, int64_t count) {
                               return outer_payload(config_.outer, difference, residual, first,
                                                    count);
                             });
  }
}

// The weights are requested at once, so that they come behind the training. Servers answer when the
// round is over.
void DecoupledLearners::begin_exchange(int fragment) {
  push(fragment);
  fragment_ = fragment;
  if (!client_) return;
  std::vector<at::Tensor> destinations(state_->weights().size());
  for (const size_t i : state_->of_fragment(fragment)) {
    destinations[i] = state_->weights()[i].common;
  }
  client_->pull(num_pushes_ + 1, destinations);
}

// Ends the exchange that is under way.
void DecoupledLearners::take(double own_share) {
  const auto begin = SteadyClock::now();
  const int fragment = *std::exchange(fragment_, std::nullopt);
  Taken taken;
  if (client_) {
    client_->wait_all_pulled();
    client_->wait_pushed();
    taken.learners = config_.parallel.learners;
    taken.bytes = client_->counts().sent_bytes - sent_before_;
  }
  for (const size_t i : state_->of_fragment(fragment)) {
    ranks_->broadcast(state_->weights()[i].common, 0)->wait();
    if (!client_) continue;
    const auto pulled = client_->pulled(static_cast<int64_t>(i));
    const int64_t own = pulled.is_late ? 0 : 1;
    taken.learners = std::min(taken.learners, pulled.workers);
    taken.staleness = std::max(taken.staleness, pulled.version - versions_[i] - own);
    versions_[i] = pulled.version;
  }
  state_->take(fragment, is_lost_ ? 0 : own_share);
  if (is_lost_) state_->reset_states(fragment);
  is_lost_ = false;
  taken_ = taken;
  waited_ += SteadyClock::now() - begin;
}

void DecoupledLearners::end_step() {
  const OuterConfig& outer = config_.outer;
  const bool is_last = step_ == start_.num_steps;
  if (fragment_ && (is_last || rounds_.arriving(step_))) take(1 - outer.mix);
  if (is_last) return;  // all is pushed in leave()
  const std::optional<int> fragment = rounds_.beginning(step_);
  if (!fragment) return;
  begin_exchange(*fragment);
  if (outer.delay == 0) take(/*own_share=*/0);
}

void DecoupledLearners::add_metrics(StepMetrics& metrics) const {
  if (!taken_) return;
  metrics.learners = taken_->learners;
  metrics.staleness = taken_->staleness;
  metrics.outer_bytes = taken_->bytes;
  metrics.outer_wait_seconds = std::chrono::duration<double>(waited_).count();
}

// A learner that waits here must not be waited for by servers, or it would wait for those who wait
// for it. When all are away, what was under way has ended.
Meeting DecoupledLearners::gather_at(int64_t step, Leave leave) {
  if (client_) {
    client_->wait_pushed();
    client_->set_away(true);
  }
  tell_of_lost();
  const Meeting meeting = train::meet(trainers(), step, leave, ranks_->rank() == 0);
  if (meeting.leave != Leave::kNo) last_ = meeting;
  return meeting;
}

// Only rank 0 speaks to the user, and learners do not hear of each other before.
void DecoupledLearners::tell_of_lost() {
  const std::vector<int64_t> lost =
      comm::all_gather_numbers(trainers(), std::exchange(num_lost_, 0));
  for (size_t rank = 0; is_root() && rank < lost.size(); ++rank) {
    if (lost[rank] == 0) continue;
    observer_.on_finding(concat("learner ", rank / static_cast<size_t>(ranks_->size()),
                                " was left out of ", lost[rank],
                                lost[rank] == 1 ? " exchange" : " exchanges",
                                ", because its weights were not finite; it went on with the "
                                "weights of the others"));
  }
}

void DecoupledLearners::fetch_common(const Meeting& meeting) {
  if (fragment_) take(1 - config_.outer.mix);
  std::vector<at::Tensor> destinations;
  for (const DecoupledState::Weight& weight : state_->weights()) {
    destinations.push_back(weight.common);
  }
  if (client_) {
    client_->pull(0, destinations);
    client_->wait_all_pulled();
  }
  for (size_t i = 0; i < destinations.size(); ++i) {
    const DecoupledState::Weight& weight = state_->weights()[i];
    if (client_) {
      versions_[i] = client_->pulled(static_cast<int64_t>(i)).version;
      if (weight.momentum.defined()) {
        const c10::NoGradGuard no_grad;
        const at::Tensor pulled = client_->pull_state(static_cast<int64_t>(i), 0);
        weight.momentum.copy_(pulled.view(weight.momentum.sizes()));
      }
    }
    for (const at::Tensor& of_first : {weight.common, weight.momentum, weight.residual}) {
      if (of_first.defined()) ranks_->broadcast(of_first, 0)->wait();
    }
  }
  std::ranges::fill(samples_, 0);  // of all learners alike, and as after a resume
  training_->optimizer().set_num_steps(start_.optimizer_steps + meeting.step - start_.step);
}

Meeting DecoupledLearners::meet(int64_t step, Leave leave) {
  const Meeting meeting = gather_at(step, leave);
  if (meeting.leave != Leave::kNo) return meeting;
  fetch_common(meeting);
  // Nobody pushes before all are back: its round would have everybody who is there.
  if (client_) client_->set_away(false);
  trainers().barrier()->wait();
  return meeting;
}

// After the last step learners push what they have not pushed, and end with the common weights.
Meeting DecoupledLearners::leave(int64_t step, Leave leave) {
  const bool ends = step == start_.num_steps && step_ == step;
  for (int fragment = 0; ends && fragment < config_.outer.fragments; ++fragment) push(fragment);
  is_lost_ = false;
  if (!last_) last_ = gather_at(step, leave);
  fetch_common(*last_);
  if (ends) {
    for (int fragment = 0; fragment < config_.outer.fragments; ++fragment) {
      state_->take(fragment, /*own_share=*/0);
    }
  }
  if (client_) client_->leave();
  trainers().barrier()->wait();
  return *last_;
}

}  // namespace trireme::train
