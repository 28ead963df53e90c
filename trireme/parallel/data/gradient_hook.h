// What sums gradients over the ranks in place of the reducer's own all-reduce: gradient
// compression, or a rule of the user's. A hook sees a bucket's whole gradients whatever the ZeRO
// stage, and each rank then keeps its part of the sum: every stage has the bits of DDP with the
// same hook. The price: with ZeRO a plain gradient is only reduce-scattered, half of an all-reduce.
//
//   struct SignHook : GradientHook {
//     int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override {...}
//   };
//   DistributedDataParallel ddp(*model, group, {.hook = std::make_shared<SignHook>()});
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::parallel {

// A trained parameter's gradient, before there is one.
struct GradientSpec {
  std::string name;  // the parameter's
  std::vector<int64_t> shape;
  at::TensorOptions options;  // dtype and device of the gradient in its bucket
};

// One bucket, complete on this rank: summed over its microbatches, divided by the global count.
struct GradientBucket {
  size_t index = 0;  // counts from 0 in the order of the calls, which every step and rank shares
  at::Tensor flat;   // [n] the gradients, each at a multiple of 64 bytes; between them anything
  std::span<const at::Tensor> gradients;  // views of `flat`, shaped like the parameters
  std::span<const std::string> names;     // one a gradient
};

// A tensor that a hook carries from step to step.
struct HookState {
  std::string name;  // unique in the hook, the same on every rank
  at::Tensor tensor;
  bool same_on_ranks = false;
};

// Thread safety: one thread at a time calls it, the one that computes. One hook serves one
// DistributedDataParallel, which shares its ownership.
class GradientHook {
 public:
  virtual ~GradientHook() = default;

  // Told once, before the first step, of every gradient there will be. What state() returns exists
  // from then on.
  virtual void prepare(std::span<const GradientSpec> gradients) {}

  // Told before the first bucket of each step.
  virtual void begin_step() {}

  // Leaves in `bucket.gradients` their sums over the group's ranks, in place, the same bits on
  // every rank. What it does to one gradient may not depend on the others of the bucket, so that
  // the size of buckets changes no bit. Returns the bytes this rank put on the wire, by the
  // formulas of comm/communicator.h; they go into the run's metrics.
  // Collective: every rank of `group`, bucket by bucket
  virtual int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) = 0;

  // What a checkpoint must hold so that a resumed run has the same bits; loading fills the tensors
  // in place.
  virtual std::vector<HookState> state() const { return {}; }
};

}  // namespace trireme::parallel
