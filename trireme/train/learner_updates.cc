#include "trireme/train/learner_updates.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/comm/hierarchical/host_identity.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/learner/named_graph.h"
#include "trireme/train/numerics/loss_sum.h"

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
  return world.size() / static_cast<int>(config.learners_here());
}

}  // namespace

LearnerUpdates::LearnerUpdates(const RunConfig& config, comm::Communicator& world,
                               TrainObserver& observer)
    : config_(config),
      world_(world),
      observer_(observer),
      learner_(config.outer.meets() ? static_cast<int>(config.outer.place)
                                    : world.rank() / ranks_of_learner(config, world)),
      ranks_(world.split(learner_, 0, concat("learner ", learner_))),
      learners_(world.split(world.rank() % ranks_of_learner(config, world), 0, "learners")),
      meeting_(config.outer.meets() ? std::make_unique<LearnerRounds>(config_, *ranks_) : nullptr),
      rounds_({.every = config.outer.every,
               .fragments = config.outer.fragments,
               .delay = config.outer.delay,
               .begin = config.outer.begin}) {}

void LearnerUpdates::attach(TrainingState& state) {
  state.use_forms([this, &state] {
    state_ =
        std::make_unique<LearnerState>(config_, state, *learners_, find_graph(), meeting_.get());
    return state_.get();
  });
}

// The hosts are those of the learners' first ranks.
std::optional<parallel::LearnerGraph> LearnerUpdates::find_graph() {
  if (config_.outer.has_common()) return std::nullopt;
  const comm::HostMap map(comm::all_gather_strings(world_, comm::host_identity()));
  std::vector<int> hosts;
  for (int rank = 0; rank < world_.size(); rank += ranks_->size()) {
    hosts.push_back(map.host_of(rank));
  }
  parallel::LearnerGraph graph = parallel::make_named_graph(config_.outer.graph, hosts);
  for (const std::string& other : comm::all_gather_strings(world_, graph.fingerprint())) {
    TRIREME_CHECK(other == graph.fingerprint(), "outer.graph ", graph.name,
                  " is another one on other ranks; give all hosts the same file");
  }
  return graph;
}

void LearnerUpdates::start(const RunStart& start, TrainingState* state) {
  num_steps_ = start.num_steps;
  if (meeting_) {
    for (const auto& [name, buffer] : state->model().buffers()) {
      TRIREME_CHECK(!buffer.is_floating_point(), "outer.meeting with a model that has ", name,
                    ", which is neither trained nor fixed; use learners that are ranks of one run");
    }
    begun_ = base_ = start.step;
    while (base_ > 0 && !rounds_.beginning(base_)) --base_;
    model_ = &state->model();
    joins_ = start.step < num_steps_;
    if (!joins_) meeting_->come_back(*state_, num_steps_);
    return;
  }
  const std::optional<int> saved = state_->fragment_under_way();
  TRIREME_CHECK(!saved || saved == rounds_.under_way(start.step), "the checkpoint of step ",
                start.step,
                " was saved during an exchange that does not end by these outer.every, "
                "outer.fragments, outer.delay and outer.begin; go on with those that it has, or "
                "from an earlier checkpoint");
  lacks_losses_ = start.step > config_.outer.begin && !rounds_.beginning(start.step);
  std::map<int, int64_t> num_mixed;
  for (int64_t step = start.step; step > 0 && std::ssize(num_mixed) < config_.outer.fragments;
       --step) {
    if (const auto fragment = rounds_.beginning(step)) {
      num_mixed.try_emplace(*fragment, rounds_.number(step) + 1);
    }
  }
  state_->set_num_mixed(std::move(num_mixed));
}

void LearnerUpdates::connect(const std::function<bool()>& is_stopped) {
  if (!joins_) return;
  if (world_.rank() == 0) {
    observer_.on_finding(concat("meets the other learners at ", config_.outer.meeting,
                                " and waits until it is one of them"));
  }
  const std::optional<int64_t> reached = meeting_->join(*state_, base_, num_steps_, is_stopped);
  if (reached) model_->spread_weights();  // each rank has taken its own part
  take_over(reached, begun_ - base_);
}

void LearnerUpdates::begin_step(int64_t step) {
  step_ = step;
  waited_ = {};
  sent_bytes_ = 0;
  has_exchanged_ = false;
  spread_.reset();
  mean_loss_.reset();
  has_notes_ = is_restored_ = false;
}

int64_t LearnerUpdates::count_terms(ParallelModel& model, int64_t own) {
  model.use_parts_of_step(is_together() ? 1 : config_.parallel.learners);
  int64_t count = own;
  if (is_together()) {
    count = 0;
    for (const int64_t each : comm::all_gather_numbers(*learners_, own)) count += each;
    model.use_global_count(count);
  }
  terms_ = static_cast<double>(count);
  return count;
}

std::vector<double> LearnerUpdates::sums_over_batches(const ParallelModel& model,
                                                      std::vector<double> mine,
                                                      size_t /*num_batches*/) {
  std::vector<double> all = model.sums_over_batches(std::move(mine));
  if (is_together()) {
    const size_t width = all.size();
    const std::vector<double> of_learners = gather(*learners_, std::move(all));
    all.assign(width, 0);
    for (size_t i = 0; i < of_learners.size(); ++i) all[i % width] += of_learners[i];
  }
  losses_ += all[0] / terms_;
  num_losses_ += 1;
  return all;
}

void LearnerUpdates::end_backward() {
  if (!is_together()) return;
  const auto begin = Clock::now();
  for (const std::vector<double>& notes : state_->sum_gradients(take_notes())) {
    decided_ = std::max(decided_, static_cast<Leave>(notes[1]));
  }
  waited_ += Clock::now() - begin;
}

std::vector<double> LearnerUpdates::take_notes() {
  const Notes notes{.loss = num_losses_ > 0 ? losses_ / num_losses_ : 0,
                    .leave = meeting_ ? 0 : static_cast<double>(asked_)};
  losses_ = num_losses_ = 0;
  lacks_noted_ = std::exchange(lacks_losses_, false);
  return notes.numbers();
}

void LearnerUpdates::begin(int fragment) { state_->start(fragment, take_notes()); }

void LearnerUpdates::finish(double own_share, bool is_mean) {
  const auto begin = Clock::now();
  state_->await();
  waited_ += Clock::now() - begin;
  const LearnerState::Arrival arrival = state_->finish(own_share, is_mean);
  spread_ = std::hypot(spread_.value_or(0), arrival.spread);
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
  is_restored_ = is_restored_ || arrival.is_restored;
  if (!arrival.notes.empty() && !std::exchange(has_notes_, true) && !lacks_noted_) {
    mean_loss_ = losses / static_cast<double>(arrival.notes.size());
  }
  if (arrival.excluded.empty() || world_.rank() != 0) return;
  std::set<std::string> names;
  for (const int learner : arrival.excluded) {
    names.insert(
        std::to_string(meeting_ ? meeting_->places()[static_cast<size_t>(learner)] : learner));
  }
  observer_.on_finding(concat("step ", step_,
                              ": left out of the exchange, because their weights "
                              "are not finite: ",
                              listed("learners", names),
                              "; they go on with the weights of the others"));
}

// A round with those that are there.
void LearnerUpdates::meet_others() {
  const bool is_due = rounds_.beginning(step_).has_value();
  const auto begin = Clock::now();
  // Decoupled learners count by what they have trained.
  const int64_t num_steps = step_ - base_;
  const double share = static_cast<double>(num_steps) / static_cast<double>(config_.outer.every);
  state_->start(/*fragment=*/0, take_notes(), config_.outer.is_decoupled() ? share : 1);
  const std::optional<int64_t> reached = meeting_->exchange(*state_, step_);
  waited_ += Clock::now() - begin;
  if (reached) {
    const bool is_kept = config_.outer.is_decoupled() && !meeting_->has_counted();
    num_late_ = is_kept ? num_late_ + num_steps : 0;
    return take_over(reached, is_kept || meeting_->has_counted() ? 0 : num_steps);
  }
  base_ = step_;
  num_late_ = 0;
  const LearnerState::Arrival arrival = state_->finish(/*own_share=*/0, /*is_mean=*/!is_due);
  spread_ = arrival.spread;
  take_in(arrival);
  meeting_->commit(*state_, step_);
}

// num_left_out: steps since the common weights that this learner has had
void LearnerUpdates::take_over(std::optional<int64_t> reached, int64_t num_left_out) {
  if (!reached) return;
  const int64_t before = base_;
  reached_ = base_ = *reached;
  if (world_.rank() != 0) return;
  std::string own;
  if (num_left_out > 0) own = concat("; leaves out its ", num_left_out, " steps since ", before);
  if (num_late_ > 0) own = concat("; its last ", num_late_, " steps count in a later round");
  observer_.on_finding(concat("behind the other learners: takes their common weights of step ",
                              reached_, " and goes on from there", own));
}

void LearnerUpdates::end_step() {
  const OuterConfig& outer = config_.outer;
  if (meeting_) {
    if (step_ == num_steps_ || rounds_.beginning(step_)) meet_others();
    return;
  }
  if (is_together()) {
    state_->follow();
    return;
  }
  if (step_ == num_steps_) return finish_run();
  if (outer.delay > 0 && state_->is_under_way() && rounds_.arriving(step_)) {
    finish(/*own_share=*/1 - outer.mix);
  }
  const std::optional<int> fragment = rounds_.beginning(step_);
  if (!fragment) return;
  if (!outer.has_common()) return mix(*fragment);
  begin(*fragment);
  if (outer.delay == 0) finish(/*own_share=*/0);
}

// All learners end with the same weights. What has just been due is exchanged as ever, and all else
// becomes the mean: an outer step for a few inner ones would be too long.
void LearnerUpdates::finish_run() {
  const OuterConfig& outer = config_.outer;
  if (!outer.has_common()) return take_in(state_->agree(take_notes()));
  if (state_->is_under_way()) finish(/*own_share=*/1 - outer.mix);
  for (int fragment = 0; fragment < outer.fragments; ++fragment) {
    const bool is_due = rounds_.beginning(step_) == fragment && outer.delay == 0;
    begin(fragment);
    finish(/*own_share=*/0, /*is_mean=*/!is_due);
  }
}

Leave LearnerUpdates::settle(Leave of_peers) {
  if (meeting_) return of_peers;  // the others go on without this learner
  asked_ = std::max(asked_, of_peers);
  return decided_;
}

void LearnerUpdates::add_metrics(StepMetrics& metrics) const {
  metrics.learners = meeting_ && !meeting_->places().empty() ? std::ssize(meeting_->places())
                                                             : config_.parallel.learners;
  if (!has_exchanged_ || is_restored_) return;
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

// Once the last checkpoint is saved: a learner that dies before it is expected again.
Outcome LearnerUpdates::finish(Outcome outcome) {
  if (num_late_ > 0 && world_.rank() == 0) {
    observer_.on_finding(concat("what this learner has learned in ", num_late_,
                                " steps came too late for their rounds, and is lost with its end"));
  }
  if (meeting_) meeting_->leave();
  return outcome;
}

}  // namespace trireme::train
