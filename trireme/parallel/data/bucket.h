// Flat buckets: several parameters, or their gradients, back to back in one tensor, so that one
// collective moves many of them. Only a plan: owns no memory and no group, and never communicates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::parallel::inline internal {

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

}  // namespace trireme::parallel::inline internal
