// Where buckets are cut among the ranks that share their states. Cuts fall between grains: pieces
// of a parameter whose size follows from its shape alone, so that what is computed grain by grain
// (the gradient norm) or element by element (an optimizer's update) has the same bits for every
// number of ranks. Pure arithmetic, no tensor memory, no group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/data/bucket.h"

namespace trireme::parallel {

// A parameter is split along its first dimension longer than 1, into grains of whole rows: the
// fewest that are at least 1024 elements and a multiple of 64, on which vectorised kernels leave no
// remainder. A parameter without room for two is one grain.
struct Grains {
  int dim = 0;               // the dimension that is split
  int64_t row_elements = 1;  // of one index of it
  int64_t rows = 1;          // a grain; the last one may have fewer
  int64_t elements = 1;      // a grain
  int64_t count = 0;         // of the whole parameter
};
Grains grains_of(at::IntArrayRef shape);

struct PartitionOptions {
  int num_ranks = 1;
  // Never cut a parameter: for optimizers that need it whole.
  bool whole_parameters = false;
};

// For each bucket its cuts: rank r holds elements [cuts[r], cuts[r + 1]) of the flat tensor. They
// are as even as grains allow; what one bucket gives a rank too much, later ones make up for.
std::vector<std::vector<int64_t>> partition(std::span<const Bucket> buckets,
                                            std::span<const at::Tensor> parameters,
                                            const PartitionOptions& options);

// The layout over one axis, "shard", of parameter number `index` in the bucket; a scalar counts as
// shape [1].
mesh::Layout layout_of(const Bucket& bucket, size_t index, at::IntArrayRef shape,
                       std::span<const int64_t> cuts);

// Rank `rank`'s part of it in a tensor [cuts[rank + 1] - cuts[rank]] that holds the rank's part of
// the bucket; shaped as the layout's local box.
at::Tensor view_shard(const Bucket& bucket, size_t index, const mesh::Layout& layout,
                      std::span<const int64_t> cuts, int rank, const at::Tensor& part);

}  // namespace trireme::parallel
