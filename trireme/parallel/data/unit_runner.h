// ZeRO-3 while a model runs: gathers a unit's parameters just before each use, in forward and again
// in backward, and releases them after it. From the second step on it also gathers the next unit
// ahead, in the order of the previous step. Every decision follows from the uses, which are the
// same on every rank; none follows from gradients, which may come on some ranks only.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/sharded_weights.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::parallel {

struct UnitOptions {
  // Gather ahead only while fewer units than this have memory. No limit for units in use: backward
  // gathers a unit before it releases the one behind it.
  int max_gathered = 3;
  bool overlap = true;  // gather ahead on the group's progress thread
};

// Thread safety: one thread drives it, or autograd on its behalf. The weights outlive it, and it
// outlives the graphs of its runs. After a CommError it is as dead as its group.
class UnitRunner {
 public:
  struct UnitBuckets {
    std::vector<size_t> buckets;      // numbers in the ShardedWeights
    bool weights_in_backward = true;  // false: backward does not gather them again
  };
  // Called when no backward of the unit is still to come in the microbatch. May be called more than
  // once.
  using BackwardOver = std::function<void(size_t unit)>;
  UnitRunner(ShardedWeights& weights, std::vector<UnitBuckets> units, UnitOptions options,
             BackwardOver backward_over);

  // Runs forward(x) with the unit's parameters gathered. Gathers them again for its backward.
  // Shapes:     those of forward
  // Comm:       (p-1)/p * n bytes of the unit's parameters in forward, the same in backward
  // Collective: every rank runs the same units in the same order
  // Throws:     CommError when a gather fails, in backward through autograd
  at::Tensor run(size_t unit, const at::Tensor& x, const UnitForward& forward);

  void begin_step();
  // The uses that follow are of this microbatch's forward. Where that is not called, or with
  // kAnyMicrobatch, a unit's backward is over once no use of any such microbatch is open.
  static constexpr int64_t kAnyMicrobatch = -1;
  void begin_forward(int64_t microbatch) { forward_ = microbatch; }
  // Before and after each microbatch's backward. The end releases all units but the one that comes
  // next. The last one ends the step: uses before the next begin_step() are not learned from.
  void begin_backward(int64_t microbatch);
  void end_backward(int64_t microbatch, bool is_last);

  // Gathers every unit and keeps it until release_all(). Call that before the weights change.
  // Collective: every rank
  void gather_all();
  void release_all();

  // How long this step waited for gathers.
  std::chrono::nanoseconds communication_time() const { return communication_time_; }

 private:
  struct State {
    UnitBuckets unit;
    std::vector<comm::WorkPtr> works;  // one per bucket while a gather is on its way
    bool gathered = false;             // has memory; the gather may be on its way
    // By microbatch: forwards whose backward is not over. None is 0.
    std::map<int64_t, int64_t> open_uses;
    int64_t in_backward = 0;  // uses whose backward has begun and is not over
  };

  void use(size_t unit);
  void gather(State& state, bool background);
  void release(State& state);
  void end_use(size_t unit, int64_t microbatch);
  bool is_next(size_t unit) const;

  ShardedWeights& weights_;
  UnitOptions options_;
  BackwardOver backward_over_;
  std::vector<State> states_;
  int num_gathered_ = 0;  // states with `gathered`
  int64_t forward_ = kAnyMicrobatch;
  std::vector<size_t> uses_;       // units in the order of this step's uses so far
  std::vector<size_t> predicted_;  // all of the last step's; empty once this step differs
  bool in_step_ = false;           // uses are recorded
  bool keeps_all_ = false;         // between gather_all() and release_all()
  std::chrono::nanoseconds communication_time_{0};
};

}  // namespace trireme::parallel
