// The weights half of ZeRO: a module's parameters in flat buckets. Every rank owns a part of each
// bucket. Buckets either stay whole on every rank (ZeRO-1 and 2) or have memory only while gathered
// (ZeRO-3). Knows nothing of modules, steps or gradients.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/data/bucket_plan.h"
#include "trireme/parallel/data/buffer_pool.h"
#include "trireme/parallel/data/part_memory.h"

namespace trireme::parallel {

// A tensor that has a shape and a place, but no memory yet. Whoever reads it crashes.
at::Tensor without_memory(at::IntArrayRef shape, const at::TensorOptions& options);
// Whether the tensor's elements have memory; so does a tensor without elements.
bool has_memory(const at::Tensor& tensor);

// Thread safety: one thread drives it. The group must outlive it. When it is destroyed, the
// parameters keep their current memory.
class ShardedWeights {
 public:
  struct BucketWeights {
    const Bucket* bucket = nullptr;
    std::vector<int64_t> cuts;  // [ranks + 1]
    bool released_when_idle = false;
  };

  // Moves the parameters' values into the buckets. The tensor objects stay the same. Parameters
  // without memory get zeros in the ranks' parts, for somebody else to fill.
  // symmetric: the parts lie in the group's symmetric memory.
  // home: keeps the parts of buckets that are released when idle; null: they are with the
  //       parameters. Outlives this.
  ShardedWeights(std::span<const at::Tensor> parameters, std::vector<BucketWeights> buckets,
                 comm::Communicator& group, bool symmetric, PartMemory* home = nullptr);
  ~ShardedWeights();
  ShardedWeights(const ShardedWeights&) = delete;
  ShardedWeights& operator=(const ShardedWeights&) = delete;

  // This rank's part of the bucket, which the optimizer changes: [cuts[rank + 1] - cuts[rank]].
  const at::Tensor& part(size_t bucket) const { return flats_[bucket].part; }

  // Starts to gather all parts. The parameters are whole once the work is done.
  // Comm:       (p-1)/p * n bytes of the bucket
  // Collective: every rank, in the same order
  [[nodiscard]] comm::WorkPtr gather(size_t bucket, bool background);

  // Hints about this rank's part, if it has a home: it is gathered soon, or not soon again.
  void will_need(size_t bucket) const;
  void let_go(size_t bucket) const;

  // Frees the whole parameters' memory if the bucket is released when idle. Views of them dangle.
  void release(size_t bucket);

  // Bytes of the parts and of the buckets that stay whole.
  int64_t resident_bytes() const;
  // The most bytes that were gathered at one time.
  int64_t peak_gathered_bytes() const { return pool_.peak_bytes(); }

 private:
  struct Flat {
    at::Tensor whole;   // [num_elements]; without memory while released
    at::Tensor part;    // [cuts[rank + 1] - cuts[rank]]; a view of `whole` if that stays
    at::Tensor memory;  // of `whole` while gathered
  };
  at::Tensor allocate(int64_t elements, const at::TensorOptions& options);
  void point_to_memory(Flat& flat) const;

  std::vector<BucketWeights> buckets_;
  comm::Communicator& group_;
  bool symmetric_;
  PartMemory* home_;
  BufferPool pool_;
  std::vector<Flat> flats_;
};

}  // namespace trireme::parallel
