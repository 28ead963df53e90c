#include "trireme/parallel/data/unit_runner.h"

#include <algorithm>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace trireme::parallel {

using Clock = std::chrono::steady_clock;

UnitRunner::UnitRunner(ShardedWeights& weights, std::vector<UnitBuckets> units, UnitOptions options)
    : weights_(weights), options_(options) {
  for (UnitBuckets& unit : units) {
    states_.emplace_back();
    states_.back().unit = std::move(unit);
  }
  for (State& state : states_) state.missing = state.unit.num_trained;
}

at::Tensor UnitRunner::run(size_t unit, const at::Tensor& x, const UnitForward& forward) {
  State& state = states_[unit];
  use(unit);
  const at::Tensor y = forward(x);
  const bool has_backward = at::GradMode::is_enabled() && y.requires_grad();
  if (has_backward && state.unit.weights_in_backward) {
    // A hook on y runs before anything of the unit's backward, one on x after all that leads to x.
    y.register_hook([this, unit](const at::Tensor&) { use(unit); });
    if (x.requires_grad()) {
      ++state.open_backwards;
      x.register_hook([this, &state](const at::Tensor&) {
        --state.open_backwards;
        release_after_backward(state);
      });
    }
  }
  // The last unit of forward is the first of backward.
  if (!is_next(unit)) release(state);
  return y;
}

void UnitRunner::begin_step() {
  predicted_ = std::exchange(uses_, {});
  communication_time_ = {};
}

bool UnitRunner::is_next(size_t unit) const {
  return uses_.size() < predicted_.size() && predicted_[uses_.size()] == unit;
}

void UnitRunner::use(size_t unit) {
  State& state = states_[unit];
  const auto start = Clock::now();
  if (!is_next(unit)) predicted_.clear();
  uses_.push_back(unit);
  gather(state, /*background=*/false);
  for (const comm::WorkPtr& work : std::exchange(state.works, {})) work->wait();
  // Every rank has the same history, so that all gather ahead the same.
  if (uses_.size() < predicted_.size() && num_gathered_ < options_.max_gathered) {
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

void UnitRunner::on_gradient(size_t unit) {
  State& state = states_[unit];
  if (state.missing > 0) --state.missing;
  release_after_backward(state);
}

// A frozen weight may be read after the last trained one has its gradient: on the way to x.
void UnitRunner::release_after_backward(State& state) {
  if (state.missing == 0 && state.open_backwards == 0) release(state);
}

void UnitRunner::end_backward() {
  for (size_t unit = 0; unit < states_.size(); ++unit) {
    if (!is_next(unit)) release(states_[unit]);
    states_[unit].missing = states_[unit].unit.num_trained;
    states_[unit].open_backwards = 0;
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
