// Flat buckets: several parameters, or their gradients, back to back in one tensor, so that one
// collective carries many of them. A plan alone: holds no memory, no group, communicates nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// Every parameter begins at a multiple of this in its bucket, as it would in memory of its own:
// matrix products choose their kernels, and so their bits, by alignment.
inline constexpr int64_t kBucketAlignmentBytes = 64;

struct Bucket {
  std::vector<size_t> parameters;  // indices into the list the buckets were made from
  std::vector<int64_t> offsets;    // [parameters] where each begins in the flat tensor, in elements
  int64_t num_elements = 0;        // of the flat tensor; between parameters lie unused ones
  at::TensorOptions options;       // dtype and device
  bool is_trained = true;          // all its parameters are, or none
};

// Fills buckets in the given order; a bucket closes when the next parameter would take it past
// `bucket_bytes` (one larger parameter has a bucket of its own). Every parameter of one dtype,
// device and need of a gradient goes to that kind's open bucket. Buckets are ordered by when their
// last parameter comes. The result depends on shapes and dtypes alone, so all ranks get the same.
std::vector<Bucket> make_buckets(std::span<const at::Tensor> parameters, int64_t bucket_bytes);

// The parameters' places in `flat` [num_elements], shaped like them; one view a parameter.
std::vector<at::Tensor> view_parameters(const Bucket& bucket, const at::Tensor& flat,
                                        std::span<const at::Tensor> parameters);

}  // namespace trireme::parallel
