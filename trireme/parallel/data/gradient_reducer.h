// Sums gradients over microbatches and ranks: the gradient half of DDP and ZeRO. Buckets fill while
// backward runs. In a step's last microbatch, or in each one if ranks come first, each bucket is
// summed over the ranks once it and all before it are complete, behind the rest of backward. Knows
// nothing of modules, weights or units.
//
//   reducer.begin(num_microbatches);
//   for each microbatch:
//     reducer.begin_microbatch();
//     backward;                        // on_gradient(p) after each parameter's gradient
//     reducer.end_microbatch();        // the last one returns with all sums
//   reducer.part(b);                   // this rank's part of each bucket's sum
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/bucket_plan.h"
#include "trireme/parallel/data/buffer_pool.h"
#include "trireme/parallel/data/gradient_hook.h"
#include "trireme/parallel/data/part_memory.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::parallel {

// The ranks that a gradient is summed over. A null group is one that holds only this rank.
struct GradientGroups {
  comm::Communicator* shard = nullptr;    // first over these; each keeps its part of the sum
  comm::Communicator* replica = nullptr;  // then over these, which keep the same part

  int shard_size() const { return shard == nullptr ? 1 : shard->size(); }
  int shard_rank() const { return shard == nullptr ? 0 : shard->rank(); }
};

struct ReducerOptions {
  bool overlap = true;    // sum on the group's progress thread, during the backward pass
  bool symmetric = true;  // buckets lie in the group's symmetric memory
  // Keep only this rank's part of the gradients from step to step. A whole bucket has memory from
  // its first gradient until it is summed (ZeRO-2).
  bool keep_part_alone = false;
  // false: a rank adds up its microbatches, and the last one is followed by one sum over the ranks.
  // true: each microbatch is summed over the ranks, and each rank adds up its part of these sums.
  // No rank then has a whole gradient for longer than a few buckets need. Implies keep_part_alone.
  bool rank_first = false;
  // rank_first, without `tree`: add microbatches in fp32, whatever dtype is sent.
  bool add_in_fp32 = false;
  // Sum over microbatches and ranks in one fixed binary tree in the bucket's dtype. Its leaves are
  // numbered rank by rank, or with rank_first microbatch by microbatch. Implies keep_part_alone.
  bool tree = false;
  // Sum gradients of lower precision in fp32.
  bool reduce_in_fp32 = false;
  // Sums in place of the group's collectives, in the thread that computes. Excludes `tree` and a
  // second group. Outlives the reducer.
  GradientHook* hook = nullptr;
  // Keeps this rank's parts, with keep_part_alone; null: they are with the parameters. Outlives the
  // reducer.
  PartMemory* home = nullptr;
  // One name per parameter, for the hook and for errors. May be empty without a hook.
  std::span<const std::string> names{};
  bool measure_squares = false;  // see microbatch_squares()
  // A bucket is complete when complete() says so, not once it has all gradients. Needed where ranks
  // wait for each other within backward, as ZeRO-3's do: which gradients come depends on a rank's
  // loss, but complete() is called at the same point on every rank.
  bool complete_when_told = false;
};

// Thread safety: one thread drives it, or autograd on its behalf. Parameters, buckets and groups
// outlive it. After a CommError it is as dead as its groups.
class GradientReducer {
 public:
  // buckets: the trained ones, in backward order, the same on all ranks. cuts[b]: the cuts of
  // buckets[b] over groups.shard (bucket_plan.h).
  GradientReducer(std::span<const at::Tensor> parameters, std::span<const Bucket* const> buckets,
                  std::vector<std::vector<int64_t>> cuts, GradientGroups groups,
                  ReducerOptions options);

  // Starts a step and forgets the gradients of the last one.
  void begin(int64_t num_microbatches);
  // Adds the parameter's .grad, which autograd has completed for this microbatch, to its bucket and
  // resets it. Starts the sums of buckets that became complete.
  // Throws: ConfigError when the parameter had a gradient in this microbatch already, or when
  //         complete() was called for its bucket
  void on_gradient(size_t parameter);
  // Memory for the parameter's next gradient in this backward: its place in the bucket, where that
  // holds none yet. Undefined where the gradient must have memory of its own: the second time in a
  // backward too.
  at::Tensor place_of(size_t parameter);
  // Starts a microbatch's backward. With rank_first it finishes the sums of the one before, which
  // have had the forward in between.
  // Collective: every rank of both groups
  void begin_microbatch();
  // With complete_when_told: no more gradients come for the bucket in this microbatch. Does nothing
  // where the microbatch is not summed over ranks.
  // Collective: every rank, for the same buckets in the same order
  void complete(size_t bucket);
  // Ends a microbatch's backward. Starts the sums of the buckets that are left; the last one
  // returns when all sums are there. A parameter that got no gradient counts as zero.
  // Comm:       last microbatch (rank_first: each), n bytes of all buckets, s ranks in `shard`, r
  //             in `replica`: without shard 2(r-1)/r * n; else (s-1)/s * n, and with replica also
  //             2(r-1)/r * n/s
  // Collective: every rank of both groups
  void end_microbatch();

  int64_t microbatches_left() const { return microbatches_left_; }
  // This rank's part of the bucket's sum. [cuts[rank + 1] - cuts[rank]], the same memory in every
  // step.
  const at::Tensor& part(size_t bucket) const { return states_[bucket].part; }
  // How long the calling thread spent in communication since begin().
  std::chrono::nanoseconds communication_time() const { return communication_time_; }
  // Bytes that this rank put on the wire since begin().
  int64_t bytes_sent() const { return bytes_sent_; }
  // With measure_squares: the squared norm of each microbatch's gradient on this rank, before any
  // sum, added up since begin().
  double microbatch_squares() const;
  // Bytes of the gradients that stay from step to step.
  int64_t resident_bytes() const;
  // Bytes of the gradients that are held between the microbatches of a step, if these are more.
  int64_t accumulating_bytes(int64_t num_microbatches) const;
  // The most bytes that whole buckets took at one time; 0 where they stay.
  int64_t peak_transient_bytes() const { return options_.keep_part_alone ? pool_.peak_bytes() : 0; }

 private:
  struct State {
    const Bucket* bucket = nullptr;
    std::vector<int64_t> cuts;
    at::Tensor whole;                // [num_elements] sum so far, or this microbatch's
    std::vector<at::Tensor> views;   // of `whole`, one per parameter
    std::vector<bool> filled;        // per view: it holds a gradient, not an older value
    std::vector<std::string> names;  // hook: one per view
    at::Tensor part;                 // [cuts[rank + 1] - cuts[rank]]; in `whole` if that stays
    at::Tensor sum;                  // shaped like `part`: of the sum under way; may be `part`
    int64_t num_sums = 0;            // over ranks that `part` has taken in this step
    TreeSum<at::Tensor> earlier;     // tree: sums of the microbatches before
    size_t missing = 0;              // gradients still to come in this microbatch
    bool is_closed = false;          // complete() was called in this microbatch
    comm::WorkPtr work;              // of the sum under way; null: none, or it was synchronous
  };
  // A parameter's place.
  struct Slot {
    size_t bucket = SIZE_MAX;
    size_t index = 0;         // in the bucket
    int64_t microbatch = -1;  // the last one with a gradient, counted as microbatches_left_
    int64_t given = -1;       // the last one in which place_of() gave out the place
  };

  // Whole buckets are the gradients where they stay from step to step or between microbatches.
  MemoryKind kind_of_buffers() const {
    const bool stays = !options_.keep_part_alone || (num_microbatches_ > 1 && !options_.rank_first);
    return stays ? MemoryKind::kGradients : MemoryKind::kBuckets;
  }
  void prepare_hook();
  std::string describe(size_t parameter) const;
  void acquire(State& state);
  void add_squares(const at::Tensor& gradient);
  // Whether this microbatch is summed over the ranks.
  bool sums_now() const { return options_.rank_first || microbatches_left_ == 1; }
  void complete_microbatch(State& state);
  void launch_complete_buckets(bool all);
  void launch(State& state);
  void launch_tree(State& state);
  void call_hook(State& state);
  at::Tensor room_for_sum(State& state);
  int64_t bytes_of_sum(const State& state) const;
  void finish_launched();
  void finish(State& state);
  void take_sum(State& state);
  template <typename Function>
  void timed(Function&& communicate);

  std::span<const at::Tensor> parameters_;
  GradientGroups groups_;
  ReducerOptions options_;
  BufferPool pool_;
  std::vector<State> states_;
  std::vector<Slot> slots_;  // one per parameter; unused for frozen ones
  size_t next_launch_ = 0;   // the first bucket whose sum has not started
  size_t next_finish_ = 0;   // the first bucket whose sum is not known to be there
  int64_t num_microbatches_ = 0;
  int64_t microbatches_left_ = 0;
  std::chrono::nanoseconds communication_time_{0};
  int64_t bytes_sent_ = 0;
  at::Tensor squares_;  // scalar, fp64; undefined: none yet
};

}  // namespace trireme::parallel
