// Plans which parameters of a module are communicated together and which rank holds what.
// Parameters are in the order in which backward meets them, in flat buckets that are cut among
// ranks. Only a plan: owns no memory and no group, and never communicates.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"
#include "trireme/parallel/data/same_module.h"
#include "trireme/parallel/data/unit.h"

namespace torch::nn {
class Module;
}

namespace trireme::parallel {

// Flat buckets: several parameters, or their gradients, back to back in one tensor, so that one
// collective moves many of them.

// Every parameter begins at a multiple of this in its bucket, as it would in its own memory. Matrix
// products choose their kernels, and so their bits, by alignment.
inline constexpr int64_t kBucketAlignmentBytes = 64;

struct Bucket {
  std::vector<size_t> parameters;  // indices into the list that the buckets were made from
  std::vector<int64_t> offsets;    // [parameters] start of each in the flat tensor, in elements
  int64_t num_elements = 0;        // of the flat tensor, including gaps between parameters
  at::TensorOptions options;       // dtype and device
  bool is_trained = true;          // applies to all its parameters
};

// Fills buckets in the given order. Each parameter goes to the open bucket for its dtype, device
// and need of a gradient. A bucket closes when the next parameter would take it past
// `bucket_bytes`; a larger parameter gets its own bucket. Buckets are ordered by their last
// parameter. The result depends only on shapes and dtypes, so it is the same on all ranks.
std::vector<Bucket> make_buckets(std::span<const at::Tensor> parameters, int64_t bucket_bytes);

// Views of `flat` [num_elements], one per parameter and shaped like it.
std::vector<at::Tensor> view_parameters(const Bucket& bucket, const at::Tensor& flat,
                                        std::span<const at::Tensor> parameters);

// Decides where buckets are cut among the ranks that shard their states. Cuts fall between grains:
// pieces of a parameter whose size depends only on its shape. Grain by grain (the gradient norm)
// and element by element (an optimizer's update), results therefore have the same bits for every
// number of ranks.

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

inline constexpr size_t kNoUnit = SIZE_MAX;

struct BucketPlan {
  // The module's selected parameters, from the last to the first. A parameter that several modules
  // share appears once.
  std::vector<std::string> names;
  std::vector<at::Tensor> parameters;
  std::vector<Bucket> buckets;
  std::vector<std::vector<int64_t>> cuts;  // one list per bucket, see partition()
  std::vector<size_t> units;               // one per bucket; kNoUnit: outside all units
};

struct BucketPlanOptions {
  Selects selects{};
  std::span<const Unit> units{};
  // Each bucket has parameters of only one unit. The last unit's buckets come first; those outside
  // all units come last. false: units are only checked, and their parameters are treated like all
  // others.
  bool apart = false;
  int64_t bucket_bytes = 4 << 20;
  PartitionOptions partition{};
};

// Throws: ConfigError when a unit has a parameter that the module lacks or that another unit has
BucketPlan plan_buckets(const torch::nn::Module& module, const BucketPlanOptions& options);

}  // namespace trireme::parallel
