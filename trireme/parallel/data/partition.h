// Decides where buckets are cut among the ranks that shard their states. Cuts fall between grains:
// pieces of a parameter whose size depends only on its shape. Grain by grain (the gradient norm)
// and element by element (an optimizer's update), results therefore have the same bits for every
// number of ranks. Pure arithmetic: owns no tensor memory and no group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/data/bucket.h"

namespace trireme::parallel::inline internal {

// A parameter is split along its first dimension longer than 1, into grains of whole rows. A grain
// has the fewest rows that make at least 1024 elements and a multiple of 64, on which vectorised
// kernels leave no remainder. A parameter too small for two is one grain.
struct Grains {
  int dim = 0;               // the dimension that is split
  int64_t row_elements = 1;  // per index of it
  int64_t rows = 1;          // per grain; the last one may have fewer
  int64_t elements = 1;      // per grain
  int64_t count = 0;         // of the whole parameter
};
Grains grains_of(at::IntArrayRef shape);

struct PartitionOptions {
  int num_ranks = 1;
  // Never cut a parameter: for optimizers that need it whole.
  bool whole_parameters = false;
};

// The cuts of each bucket: rank r holds elements [cuts[r], cuts[r + 1]) of the flat tensor. They
// are as even as grains allow. If one bucket gives a rank too much, later ones compensate.
std::vector<std::vector<int64_t>> partition(std::span<const Bucket> buckets,
                                            std::span<const at::Tensor> parameters,
                                            const PartitionOptions& options);

// The layout over one axis, "shard", of parameter number `index` in the bucket. A scalar counts as
// shape [1].
mesh::Layout layout_of(const Bucket& bucket, size_t index, at::IntArrayRef shape,
                       std::span<const int64_t> cuts);

// Rank `rank`'s part of that parameter, as a view of `part` [cuts[rank + 1] - cuts[rank]], which
// holds the rank's part of the bucket. Shaped as the layout's local box.
at::Tensor view_shard(const Bucket& bucket, size_t index, const mesh::Layout& layout,
                      std::span<const int64_t> cuts, int rank, const at::Tensor& part);

}  // namespace trireme::parallel::inline internal
