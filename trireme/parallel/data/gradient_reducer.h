// Gradients on their way from autograd to the ranks that own them: the gradient half of DDP and
// ZeRO. Buckets fill while backward runs, and each is summed over the ranks as soon as it is
// complete. Knows nothing of modules, weights or units.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/bucket.h"
#include "trireme/parallel/data/buffer_pool.h"
#include "trireme/parallel/data/gradient_hook.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::parallel {

// The ranks that a gradient is summed over. Either may be null: a group of this rank alone.
struct GradientGroups {
  comm::Communicator* shard = nullptr;    // each rank keeps its part of the sum
  comm::Communicator* replica = nullptr;  // then summed over these, who have the same part

  int shard_size() const { return shard == nullptr ? 1 : shard->size(); }
  int shard_rank() const { return shard == nullptr ? 0 : shard->rank(); }
};

struct ReducerOptions {
  bool overlap = true;    // on the group's progress thread, behind backward
  bool symmetric = true;  // buckets in the group's symmetric memory
  // Only this rank's part of a gradient stays; the rest has memory while it is on its way (ZeRO-2).
  bool keep_part_alone = false;
  // Sum over microbatches and ranks in one fixed binary tree.
  bool tree = false;
  // Sum in fp32 what is less precise.
  bool reduce_in_fp32 = false;
  // Sums in place of the group's own collectives, in the thread that computes; not with `tree` nor
  // with both groups. Outlives the reducer.
  GradientHook* hook = nullptr;
  std::span<const std::string> names{};  // hook: one a parameter
  bool measure_squares = false;          // see microbatch_squares()
  // A bucket is complete when complete() says so, at the same point on every rank, and not once its
  // gradients are there, which depends on what a rank's loss used: for where ranks wait for each
  // other within backward.
  bool complete_when_told = false;
};

// Thread safety: one thread drives it, or autograd on its behalf. The groups outlive it.
class GradientReducer {
 public:
  // buckets: trained ones, in backward order, the same on all ranks. cuts[b]: of buckets[b], over
  // groups.shard.
  GradientReducer(std::span<const at::Tensor> parameters, std::span<const Bucket* const> buckets,
                  std::vector<std::vector<int64_t>> cuts, GradientGroups groups,
                  ReducerOptions options);

  // Forgets the last step's gradients.
  void begin(int64_t num_microbatches);
  // Takes the parameter's .grad, which autograd has just completed for this microbatch. In the
  // step's last microbatch starts what became complete.
  // Throws: ConfigError when the parameter had a gradient in this microbatch already, or its bucket
  //         is complete
  void on_gradient(size_t parameter);
  // With complete_when_told: no more gradients come for the bucket in this microbatch.
  void complete(size_t bucket);
  // After a microbatch's backward. After the last one's: zero for parameters without gradient, and
  // all sums are there.
  // Comm: last microbatch, of n bytes: without shard group 2(r-1)/r * n over r replicas; else
  //       (s-1)/s * n over s ranks and 2(r-1)/r * n/s
  void end_microbatch();

  int64_t microbatches_left() const { return microbatches_left_; }
  // This rank's part of the bucket's summed gradients; its memory is the same in every step.
  const at::Tensor& part(size_t bucket) const { return states_[bucket].part; }
  // How long the step was held up by communication.
  std::chrono::nanoseconds communication_time() const { return communication_time_; }
  // What this rank put on the wire since begin().
  int64_t bytes_sent() const { return bytes_sent_; }
  // With measure_squares: of each microbatch's gradient of this rank alone, the sum of squares;
  // summed over the microbatches since begin().
  double microbatch_squares() const;
  // Bytes of gradients that stay from step to step; the largest sum of those on their way.
  int64_t resident_bytes() const;
  int64_t whole_bytes() const;  // of all ranks' parts
  int64_t peak_transient_bytes() const { return options_.keep_part_alone ? pool_.peak_bytes() : 0; }

 private:
  struct State {
    const Bucket* bucket = nullptr;
    std::vector<int64_t> cuts;
    at::Tensor whole;                // [num_elements] this microbatch's, or the sum so far
    std::vector<at::Tensor> views;   // of `whole`, one a parameter
    std::vector<bool> filled;        // the view holds a gradient
    std::vector<std::string> names;  // hook: one a view
    at::Tensor part;                 // [cuts[rank + 1] - cuts[rank]]
    TreeSum<at::Tensor> earlier;     // tree: of the microbatches before
    size_t missing = 0;              // gradients still to come in this microbatch
    bool is_closed = false;          // complete() was called in the last microbatch
    comm::WorkPtr work;
  };
  struct Slot {
    size_t bucket = SIZE_MAX;
    size_t index = 0;         // in the bucket
    int64_t microbatch = -1;  // whose gradient came last
  };

  void prepare_hook();
  std::string describe(size_t parameter) const;
  void acquire(State& state);
  void add_squares(const at::Tensor& gradient);
  void complete_microbatch(State& state);
  void launch_complete_buckets(bool all);
  void launch(State& state);
  void call_hook(State& state);
  int64_t bytes_of_sum(const State& state) const;
  void finish(State& state);
  template <typename Function>
  void timed(Function&& communicate);

  std::span<const at::Tensor> parameters_;
  GradientGroups groups_;
  ReducerOptions options_;
  BufferPool pool_;
  std::vector<State> states_;
  std::vector<Slot> slots_;  // one a parameter; of frozen ones unused
  size_t next_launch_ = 0;   // buckets start and end in order on every rank
  size_t next_finish_ = 0;
  int64_t microbatches_left_ = 0;
  std::chrono::nanoseconds communication_time_{0};
  int64_t bytes_sent_ = 0;
  at::Tensor squares_;  // scalar, fp64; undefined: none yet
};

}  // namespace trireme::parallel
