// A unit's memory:
//
//                gather(), takes memory                wait
//   released ---------------------------> on its way -------> gathered
//       ^                                     | wait              |
//       +-------------------------------------+-------------------+
//                              release()
//
// A step of three units that follows its prediction, with max_gathered = 3. use() waits for the
// unit and then gathers the next one ahead. The x of a unit is the y of the one before, so both
// have their hooks on one tensor. They run in the order of registration: use() of the earlier unit,
// then end_use() of the later one. So for a moment both have memory.
//
//                  forward                       backward
//                  run 0     run 1     run 2     y of 2    y of 1    y of 0    end
//   use            0         1         2         2         1         0
//   gathered ahead 1         2         (2)       1         0
//   released       0         1                             2         1         0
//   with memory    0 1       1 2       2         2 1       2 1 0     1 0
//
// (2): unit 2 is next, so it has memory already, and run() does not release it. The x of unit 0
// needs no gradient and so has no hook: end_backward() ends that use.
//
// Prediction. uses_ records the units in the order of their uses. begin_step() makes it the
// prediction for the next step. The first use that differs discards the prediction; from then on
// every gather is in the foreground until the next step. A unit that was gathered ahead in vain is
// released by its next use or by end_backward().
//
// Order. All ranks gather in one order: they have the same uses, and so the same predictions. The
// weights' group is not the gradients', so their sums do not come in between.
//
// Concurrency. A gather ahead runs on the group's progress thread while the unit before computes.
// It writes memory that nobody reads before use() has waited for it. release() waits too: memory
// does not go while a gather writes into it.
//
// backward_over_ tells the reducer (complete()) that a unit gets no more gradients in a microbatch.
// It is told at begin_backward() for units that the microbatch has not used, and at the end of a
// unit's last open use in it. A pipeline runs several forwards before a backward, so open uses are
// counted by microbatch.
//
// Failure. A wait throws when a peer dies, is late or aborts. The exception passes through run() or
// autograd to the caller.
#include "trireme/parallel/data/unit_runner.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace trireme::parallel {

using Clock = std::chrono::steady_clock;

UnitRunner::UnitRunner(ShardedWeights& weights, std::vector<UnitBuckets> units, UnitOptions options,
                       BackwardOver backward_over)
    : weights_(weights), options_(options), backward_over_(std::move(backward_over)) {
  for (UnitBuckets& unit : units) {
    states_.emplace_back();
    states_.back().unit = std::move(unit);
  }
}

at::Tensor UnitRunner::run(size_t unit, const at::Tensor& x, const UnitForward& forward) {
  State& state = states_[unit];
  use(unit);
  const at::Tensor y = forward(x);
  if (at::GradMode::is_enabled() && y.requires_grad()) {
    ++state.open_uses[forward_];
    // y's hook runs before all of the unit's backward, x's after all of it: autograd runs the
    // youngest ready node first, and the node that made x is older than the unit's. A leaf's node
    // runs as soon as its gradient is there, so a leaf has no hook and end_backward() ends the use.
    if (state.unit.weights_in_backward) {
      y.register_hook([this, unit](const at::Tensor&) {
        ++states_[unit].in_backward;
        use(unit);
      });
    }
    if (x.requires_grad() && !x.is_leaf()) {
      x.register_hook(
          [this, unit, microbatch = forward_](const at::Tensor&) { end_use(unit, microbatch); });
    }
  }
  // The last unit of forward stays: it is the first of backward.
  if (!is_next(unit)) release(state);
  return y;
}

void UnitRunner::begin_step() {
  // What one step did is the best guess for the next.
  predicted_ = std::exchange(uses_, {});
  in_step_ = true;
  communication_time_ = {};
}

bool UnitRunner::is_next(size_t unit) const {
  return in_step_ && uses_.size() < predicted_.size() && predicted_[uses_.size()] == unit;
}

void UnitRunner::use(size_t unit) {
  State& state = states_[unit];
  const auto start = Clock::now();
  if (in_step_) {
    if (!is_next(unit)) predicted_.clear();
    uses_.push_back(unit);
  }
  gather(state, /*background=*/false);
  for (const comm::WorkPtr& work : std::exchange(state.works, {})) work->wait();
  for (const size_t bucket : state.unit.buckets) weights_.let_go(bucket);
  // The condition has one value on all ranks: it follows from the uses.
  if (in_step_ && uses_.size() < predicted_.size() && num_gathered_ < options_.max_gathered) {
    // Ahead only while there is room: memory is what ZeRO-3 saves.
    gather(states_[predicted_[uses_.size()]], options_.overlap);
  }
  // What a disk has takes longer, and so begins a unit earlier.
  if (in_step_ && uses_.size() + 1 < predicted_.size()) {
    const State& after = states_[predicted_[uses_.size() + 1]];
    for (const size_t bucket : after.unit.buckets) weights_.will_need(bucket);
  }
  communication_time_ += Clock::now() - start;
}

void UnitRunner::gather(State& state, bool background) {
  if (state.gathered) return;
  const c10::NoGradGuard no_grad;
  for (const size_t bucket : state.unit.buckets) {
    state.works.push_back(weights_.gather(bucket, background));
  }
  state.gathered = true;
  ++num_gathered_;
}

void UnitRunner::release(State& state) {
  if (!state.gathered || keeps_all_) return;
  // A gather that was made ahead in vain may still write.
  for (const comm::WorkPtr& work : std::exchange(state.works, {})) work->wait();
  for (const size_t bucket : state.unit.buckets) weights_.release(bucket);
  state.gathered = false;
  --num_gathered_;
}

void UnitRunner::end_use(size_t unit, int64_t microbatch) {
  State& state = states_[unit];
  // Backwards of several uses of one unit may interleave: the last one to end releases.
  if (state.in_backward > 0 && --state.in_backward == 0 && !is_next(unit)) release(state);
  const auto uses = state.open_uses.find(microbatch);
  if (uses == state.open_uses.end() || --uses->second > 0) return;
  state.open_uses.erase(uses);
  backward_over_(unit);
}

void UnitRunner::begin_backward(int64_t microbatch) {
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    const std::map<int64_t, int64_t>& uses = states_[unit].open_uses;
    const bool is_used = microbatch == kAnyMicrobatch ? !uses.empty() : uses.contains(microbatch);
    if (!is_used) backward_over_(unit);  // nothing will end it
  }
}

void UnitRunner::end_backward(int64_t microbatch, bool is_last) {
  if (is_last) in_step_ = false;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    states_[unit].in_backward = 0;
    if (microbatch != kAnyMicrobatch) states_[unit].open_uses.erase(microbatch);
    if (is_last) states_[unit].open_uses.clear();
    if (!is_next(unit)) release(states_[unit]);
  }
}

void UnitRunner::gather_all() {
  for (State& state : states_) gather(state, /*background=*/false);
  for (State& state : states_) {
    for (const comm::WorkPtr& work : std::exchange(state.works, {})) work->wait();
  }
  keeps_all_ = true;
}

void UnitRunner::release_all() {
  keeps_all_ = false;
  for (State& state : states_) release(state);
}

}  // namespace trireme::parallel
