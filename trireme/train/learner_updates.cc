#include "trireme/train/learner_updates.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/learner/named_graph.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;

// Notes of an exchange, in this order.
struct Notes {
  double loss = 0;  // this learner's mean since its last exchange
  double leave = 0;

  std::vector<double> numbers() const { return {loss, leave}; }
};

int ranks_of_learner(const RunConfig& config, const comm::Communicator& world) {
  return world.size() / static_cast<int>(config.parallel.learners);
}

}  // namespace

LearnerUpdates::LearnerUpdates(const RunConfig& config, comm::Communicator& world,
                               TrainObserver& observer)
    : config_(config),
      world_(world),
      observer_(observer),
      learner_(world.rank() / ranks_of_learner(config, world)),
      ranks_(world.split(learner_, 0, concat("learner ", learner_))),
      learners_(world.split(world.rank() % ranks_of_learner(config, world), 0, "learners")),
      rounds_({.every = config.outer.every,
               .fragments = config.outer.fragments,
               .delay = config.outer.delay,
               .begin = config.outer.begin}) {}

void LearnerUpdates::attach(TrainingState& state) {
  state_ = std::make_unique<LearnerState>(config_, state, *learners_, find_graph());
  state.use_form(state_.get());
}

// The hosts are those of the learners' first ranks.
std::optional<parallel::LearnerGraph> LearnerUpdates::find_graph() {
  if (config_.outer.has_common()) return std::nullopt;
  const std::vector<std::string> all = comm::all_gather_strings(world_, comm::host_identity());
  std::vector<std::string> names;
  std::vector<int> hosts;
  for (size_t rank = 0; rank < all.size(); rank += static_cast<size_t>(ranks_->size())) {
    const auto found = std::ranges::find(names, all[rank]);
    hosts.push_back(static_cast<int>(found - names.begin()));
    if (found == names.end()) names.push_back(all[rank]);
  }
  return parallel::make_named_graph(config_.outer.graph, hosts);
}

void LearnerUpdates::begin_step(int64_t step) {
  step_ = step;
  waited_ = {};
  sent_bytes_ = 0;
  has_exchanged_ = false;
  spread_.reset();
  mean_loss_.reset();
}

int64_t LearnerUpdates::count_terms(ParallelModel& /*model*/, int64_t own) {
  terms_ = static_cast<double>(own);
  return own;
}

std::vector<double> LearnerUpdates::sums_over_batches(const ParallelModel& model,
                                                      std::vector<double> mine,
                                                      size_t /*num_batches*/) {
  std::vector<double> all = model.sums_over_batches(std::move(mine));
  losses_ += all[0] / terms_;
  num_losses_ += 1;
  return all;
}

void LearnerUpdates::end_backward() {
  if (!is_together()) return;
  const auto begin = Clock::now();
  state_->average_gradients();
  waited_ += Clock::now() - begin;
}

std::vector<double> LearnerUpdates::take_notes() {
  const Notes notes{.loss = num_losses_ > 0 ? losses_ / num_losses_ : 0,
                    .leave = static_cast<double>(asked_)};
  losses_ = num_losses_ = 0;
  return notes.numbers();
}

void LearnerUpdates::start(int fragment) { state_->start(fragment, take_notes()); }

void LearnerUpdates::finish(double own_share) {
  const auto begin = Clock::now();
  state_->await();
  waited_ += Clock::now() - begin;
  const LearnerState::Arrival arrival = state_->finish(own_share);
  spread_ = arrival.spread;
  take_in(arrival);
}

void LearnerUpdates::mix(int fragment) {
  const auto begin = Clock::now();
  take_in(state_->mix(fragment, rounds_.number(step_), take_notes()));
  waited_ += Clock::now() - begin;
}

void LearnerUpdates::take_in(const LearnerState::Arrival& arrival) {
  sent_bytes_ += state_->sent_bytes();
  has_exchanged_ = true;
  double losses = 0;
  for (const std::vector<double>& notes : arrival.notes) {
    losses += notes[0];
    decided_ = std::max(decided_, static_cast<Leave>(notes[1]));
  }
  if (!arrival.notes.empty()) mean_loss_ = losses / static_cast<double>(arrival.notes.size());
  if (arrival.excluded.empty() || world_.rank() != 0) return;
  std::vector<std::string> names;
  for (const int learner : arrival.excluded) names.push_back(std::to_string(learner));
  observer_.on_finding(concat("step ", step_,
                              ": left out of the exchange, because their weights "
                              "are not finite: ",
                              listed("learners", names),
                              "; they go on with the weights of the others"));
}

void LearnerUpdates::end_step() {
  const OuterConfig& outer = config_.outer;
  if (is_together()) {
    state_->follow();
    losses_ = num_losses_ = 0;
    return;
  }
  if (step_ == config_.train.steps) {  // all learners end with the same weights
    if (!outer.has_common()) {
      state_->agree();
      return;
    }
    if (state_->is_under_way()) finish(/*own_share=*/1 - outer.mix);
    for (int fragment = 0; fragment < outer.fragments; ++fragment) {
      start(fragment);
      finish(/*own_share=*/0);
    }
    return;
  }
  if (outer.delay > 0 && state_->is_under_way() && rounds_.arriving(step_)) {
    finish(/*own_share=*/1 - outer.mix);
  }
  const std::optional<int> fragment = rounds_.beginning(step_);
  if (!fragment) return;
  if (!outer.has_common()) return mix(*fragment);
  start(*fragment);
  if (outer.delay == 0) finish(/*own_share=*/0);
}

Leave LearnerUpdates::settle(Leave of_peers) {
  asked_ = std::max(asked_, of_peers);
  return decided_;
}

void LearnerUpdates::add_metrics(StepMetrics& metrics) const {
  metrics.learners = config_.parallel.learners;
  if (!has_exchanged_) return;
  metrics.learner_spread = spread_;
  metrics.learner_loss = mean_loss_;
  metrics.outer_bytes = sent_bytes_;
  metrics.outer_wait_seconds = std::chrono::duration<double>(waited_).count();
}

Meeting LearnerUpdates::meet(int64_t step, Leave leave) {
  Meeting meeting = UpdateStrategy::meet(step, std::max(leave, asked_));
  decided_ = std::max(decided_, meeting.leave);
  return meeting;
}

}  // namespace trireme::train
