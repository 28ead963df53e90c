// Sums of gradients over the ranks in place of the reducer's all-reduce: the hook, and the kinds of
// compression that are hooks in compression/.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/choice.h"
#include "trireme/comm/communicator.h"

namespace trireme::parallel {

// The kinds of gradient compression. Each is a hook in compression/.
enum class Compression { kNone, kBf16, kFp16, kInt8, kPowerSgd, kTopK };
inline constexpr Choice<Compression> kCompressions[] = {
    {"none", Compression::kNone},         {"bf16", Compression::kBf16},
    {"fp16", Compression::kFp16},         {"int8", Compression::kInt8},
    {"powersgd", Compression::kPowerSgd}, {"topk", Compression::kTopK}};

// How ranks add their gradients: by +, or by the projections of AdasumHook.
enum class GradientSum { kSum, kAdasum };
inline constexpr Choice<GradientSum> kGradientSums[] = {{"sum", GradientSum::kSum},
                                                        {"adasum", GradientSum::kAdasum}};

// Whether a rank keeps what a step did not send and adds it to the next gradient.
constexpr bool keeps_residual(Compression compression) {
  return compression == Compression::kPowerSgd || compression == Compression::kTopK;
}

// A hook that sums gradients over the ranks in place of the reducer's all-reduce: gradient
// compression, or the user's own rule. A hook sees a bucket's whole gradients at every ZeRO stage,
// and each rank then keeps its part of the sum. Every stage therefore has the bits of DDP with the
// same hook. With ZeRO this costs traffic: plain gradients are only reduce-scattered, which is half
// an all-reduce.
//
//   struct SignHook : GradientHook {
//     int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override {...}
//   };
//   DistributedDataParallel ddp(*model, group, {.hook = std::make_shared<SignHook>()});
// Describes a trained parameter's gradient before there is one.
struct GradientSpec {
  std::string name;  // the parameter's
  std::vector<int64_t> shape;
  at::TensorOptions options;  // dtype and device of the gradient in its bucket
  int num_ranks = 1;          // of the group that it is summed over
  int rank = 0;               // this one's number there
};

// One bucket that is complete on this rank: summed over its microbatches, or of one microbatch if
// ranks come first (DdpOptions::rank_first), and divided by the global count.
struct GradientBucket {
  size_t index = 0;  // of the bucket, from 0; the same in every step and on every rank
  at::Tensor flat;   // [n] the gradients, each at a multiple of 64 bytes; gaps are undefined
  std::span<const at::Tensor> gradients;  // views of `flat`, shaped like the parameters
  std::span<const std::string> names;     // one per gradient
};

// A tensor that a hook carries from step to step.
struct HookState {
  std::string name;  // unique in the hook, the same on every rank
  at::Tensor tensor;
  bool same_on_ranks = false;
  std::string parameter{};  // whose gradient it belongs to; empty: to none
  int num_ranks = 1;        // see GradientSpec
  int rank = 0;
  // Not empty: the tensor is rows [cuts[rank], cuts[rank + 1]) of one that the group's ranks hold
  // together. Empty: each rank has a tensor of its own, shaped like the gradient, and a sum over
  // ranks may be divided among them in another way. Without `same_on_ranks`
  std::vector<int64_t> cuts{};
};

// Thread safety: called from one thread, the one that computes. A hook with state serves one
// DistributedDataParallel, which shares its ownership. One without may serve several.
class GradientHook {
 public:
  virtual ~GradientHook() = default;

  // Called once before the first step, with all gradients that there will be. From then on state()
  // is complete.
  virtual void prepare(std::span<const GradientSpec> gradients) {}

  // Whether it is also called in a group of one rank, where nothing travels.
  virtual bool changes_own() const { return false; }

  // Called before the first bucket of each step.
  virtual void begin_step() {}

  // Replaces `bucket.gradients` by their sums over the group's ranks, in place, with the same bits
  // on every rank. The result for one gradient must not depend on others in the bucket, so that the
  // size of buckets changes no bit. Returns the bytes this rank put on the wire, by the formulas of
  // comm/communicator.h, for the run's metrics.
  // Collective: every rank of `group`, bucket by bucket
  virtual int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) = 0;

  // The state that a checkpoint must store for a resumed run to have the same bits. Loading fills
  // the tensors in place.
  virtual std::vector<HookState> state() const { return {}; }
};

}  // namespace trireme::parallel
