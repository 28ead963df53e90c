// ZeRO-3 while a model runs: a unit's parameters are gathered just before it is used, in forward
// and again in backward, and released after. What comes next is learned from the step before and
// gathered ahead. Knows nothing of gradients' values.
#pragma once

#include <chrono>
#include <cstdint>
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
    size_t num_trained = 0;       // parameters that get a gradient
    bool weights_in_backward = true;
  };
  UnitRunner(ShardedWeights& weights, std::vector<UnitBuckets> units, UnitOptions options);

  // forward(x) with the unit's parameters gathered, and again when backward comes back to it.
  // Shapes:     those of forward
  // Comm:       (p-1)/p * n bytes of the unit's parameters in forward, the same in backward
  // Collective: every rank runs the same units in the same order
  at::Tensor run(size_t unit, const at::Tensor& x, const UnitForward& forward);

  void begin_step();
  // Told of each gradient of the unit's parameters, once a microbatch.
  void on_gradient(size_t unit);
  // After a microbatch's backward: releases what is still gathered and does not come next.
  void end_backward();

  // Gathers every unit and keeps it, until release_all(), which must come before the weights change.
  void gather_all();
  void release_all();

  // How long this step waited for gathers.
  std::chrono::nanoseconds communication_time() const { return communication_time_; }

 private:
  struct State {
    UnitBuckets unit;
    std::vector<comm::WorkPtr> works;  // of a gather on its way
    bool gathered = false;             // or on its way
    int64_t open_backwards = 0;        // uses whose input still waits for its gradient
    size_t missing = 0;                // gradients still to come in this backward
  };

  void use(size_t unit);
  void gather(State& state, bool background);
  void release(State& state);
  void release_after_backward(State& state);
  bool is_next(size_t unit) const;

  ShardedWeights& weights_;
  UnitOptions options_;
  std::vector<State> states_;
  int num_gathered_ = 0;
  std::vector<size_t> uses_;       // of this step so far
  std::vector<size_t> predicted_;  // those of the last step, while this one follows them
  bool keeps_all_ = false;
  std::chrono::nanoseconds communication_time_{0};
};

}  // namespace trireme::parallel
