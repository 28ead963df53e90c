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
    ++state.open_uses;
    // A hook on y runs before anything of the unit's backward, one on x after all that leads to x.
    // A leaf's runs as soon as its gradient is there: the backward's end is the unit's then.
    if (state.unit.weights_in_backward) {
      y.register_hook([this, unit](const at::Tensor&) {
        ++states_[unit].in_backward;
        use(unit);
      });
    }
    if (x.requires_grad() && !x.is_leaf()) {
      x.register_hook([this, unit](const at::Tensor&) { end_use(unit); });
    }
  }
  // The last unit of forward is the first of backward.
  if (!is_next(unit)) release(state);
  return y;
}

void UnitRunner::begin_step() {
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
  // Every rank has the same history, so that all gather ahead the same.
  if (in_step_ && uses_.size() < predicted_.size() && num_gathered_ < options_.max_gathered) {
    gather(states_[predicted_[uses_.size()]], options_.overlap);
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
  for (const comm::WorkPtr& work : std::exchange(state.works, {})) work->wait();
  for (const size_t bucket : state.unit.buckets) weights_.release(bucket);
  state.gathered = false;
  --num_gathered_;
}

void UnitRunner::end_use(size_t unit) {
  State& state = states_[unit];
  // Of several uses the last one to end: their backwards may interleave.
  if (state.in_backward > 0 && --state.in_backward == 0 && !is_next(unit)) release(state);
  if (state.open_uses > 0 && --state.open_uses == 0) backward_over_(unit);
}

void UnitRunner::begin_backward() {
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    if (states_[unit].open_uses == 0) backward_over_(unit);  // not used
  }
}

void UnitRunner::end_backward(bool is_last) {
  if (is_last) in_step_ = false;
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    states_[unit].in_backward = 0;
    if (is_last) states_[unit].open_uses = 0;
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
