// ZeRO-3 while a model runs: a unit's parameters are gathered just before it is used, in forward
// and again in backward, and released after. What comes next is learned from the step before and
// gathered ahead. What it does and when follows from the uses alone, which are the same on every
// rank, and never from gradients: a parameter may be used on some ranks only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/sharded_weights.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::parallel {

struct UnitOptions {
  int max_gathered = 3;  // units with memory at one time, those ahead included
  bool overlap = true;   // gather ahead on the group's progress thread
};

// Thread safety: one thread drives it, or autograd on its behalf. The weights outlive it.
class UnitRunner {
 public:
  struct UnitBuckets {
    std::vector<size_t> buckets;  // of the weights
    bool weights_in_backward = true;
  };
  // Told that no use of the unit is left whose backward is to come.
  using BackwardOver = std::function<void(size_t unit)>;
  UnitRunner(ShardedWeights& weights, std::vector<UnitBuckets> units, UnitOptions options,
             BackwardOver backward_over);

  // forward(x) with the unit's parameters gathered, and again when backward comes back to it.
  // Shapes:     those of forward
  // Comm:       (p-1)/p * n bytes of the unit's parameters in forward, the same in backward
  // Collective: every rank runs the same units in the same order
  at::Tensor run(size_t unit, const at::Tensor& x, const UnitForward& forward);

  void begin_step();
  // Around each microbatch's backward. The end releases what is still gathered and does not come
  // next; the last one ends the step, and uses until the next are not learned from.
  void begin_backward();
  void end_backward(bool is_last);

  // Gathers every unit and keeps it, until release_all(), which must come before the weights
  // change.
  void gather_all();
  void release_all();

  // How long this step waited for gathers.
  std::chrono::nanoseconds communication_time() const { return communication_time_; }

 private:
  struct State {
    UnitBuckets unit;
    std::vector<comm::WorkPtr> works;  // of a gather on its way
    bool gathered = false;             // or on its way
    int64_t open_uses = 0;             // in forward, whose backward is not over
    int64_t in_backward = 0;           // uses whose backward is under way
  };

  void use(size_t unit);
  void gather(State& state, bool background);
  void release(State& state);
  void end_use(size_t unit);
  bool is_next(size_t unit) const;

  ShardedWeights& weights_;
  UnitOptions options_;
  BackwardOver backward_over_;
  std::vector<State> states_;
  int num_gathered_ = 0;
  std::vector<size_t> uses_;       // of this step so far
  std::vector<size_t> predicted_;  // those of the last step, while this one follows them
  bool in_step_ = false;
  bool keeps_all_ = false;
  std::chrono::nanoseconds communication_time_{0};
};

}  // namespace trireme::parallel
