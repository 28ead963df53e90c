// Flat gradient buckets: the gradients of several parameters back to back in one tensor, so that
// one collective carries many of them. Holds no group and communicates nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

struct Bucket {
  at::Tensor flat;                    // [sum of the parameters' elements], one dtype
  std::vector<size_t> parameters;     // indices into the list the buckets were made from
  std::vector<at::Tensor> gradients;  // views of `flat`, shaped like the parameters
};

// Fills buckets in the given order; a bucket closes when the next parameter would take it past
// `bucket_bytes` (one larger parameter has a bucket of its own). Every parameter of one dtype and
// device goes to that dtype's open bucket. Buckets are ordered by when their last parameter comes.
// The result's order and contents depend on shapes and dtypes alone, so all ranks get the same.
// `allocate(elements, like)` makes a bucket's memory, of `like`'s dtype and device.
using Allocate = std::function<at::Tensor(int64_t elements, const at::Tensor& like)>;
std::vector<Bucket> make_buckets(std::span<const at::Tensor> parameters, int64_t bucket_bytes,
                                 const Allocate& allocate);

}  // namespace trireme::parallel
