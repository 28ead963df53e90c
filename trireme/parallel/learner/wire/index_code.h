// Which elements of a tensor are sent when not all are: their choice, and their indices in bytes.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// The indices of the `count` elements of largest magnitude; of equal ones, those that come first.
// Shapes: x [n], no NaN -> [count] int64, ascending
at::Tensor choose_largest(const at::Tensor& x, int64_t count);

// Bytes of `count` ascending indices below `size`: about 2 + log2(size / count) bits each, for
// example 1 byte for one element of 64. The number depends on `size` and `count` only.
int64_t index_bytes(int64_t count, int64_t size);

// An index's low floor(log2(size / count)) bits are in one bit plane each, after the high parts.
// Those are one bit per index: with high part h, index number i sets bit h + i of a map.
// Shapes: indices [count] int64, ascending, distinct, below `size` -> [index_bytes()] uint8
// Source: Elias 1974, "Efficient storage and retrieval by content and address of static files"
at::Tensor encode_indices(const at::Tensor& indices, int64_t size);
// Shapes: bytes [index_bytes(count, size)] uint8 -> [count] int64
// Throws: CommError unless the bytes hold `count` ascending distinct indices below `size`
at::Tensor decode_indices(const at::Tensor& bytes, int64_t count, int64_t size);

}  // namespace trireme::parallel
