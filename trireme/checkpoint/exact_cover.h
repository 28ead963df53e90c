// Shapes and boxes that someone else may have written, checked before anything is allocated or
// read: sizes that fit into 64 bits, and boxes that hold each element of a tensor exactly once.
// Pure arithmetic; touches no tensor and no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// libtorch's operators take no more.
inline constexpr size_t kMaxDims = 64;

// The bytes of a tensor of this shape. Nothing when it has more than kMaxDims dimensions, when a
// length is negative, or when the bytes do not fit into an int64_t, lengths of 0 taken as 1:
// libtorch computes strides that way.
std::optional<int64_t> num_bytes_of(std::span<const int64_t> shape, size_t bytes_per_element);

// For messages: "[3, 4]", the first kMaxDims lengths and "..." where a file claims more.
std::string shown_shape(std::span<const int64_t> shape);

// Empty when each element of a tensor of this shape, which num_bytes_of() has accepted, lies in
// exactly one of the boxes; otherwise what is wrong: "element [2, 0] lies in 2 pieces, expected 1".
// Boxes without elements are refused.
// Sorts num_corners() numbers, and refuses more than 2^23.
std::string cover_error(std::span<const int64_t> shape, const std::vector<mesh::Box>& boxes);

// n 2^k for n boxes that cut k of the dimensions, or the largest number where that is beyond it; 0
// for boxes of other numbers of dimensions. Of any shape, num_bytes_of() may have refused it.
size_t num_corners(std::span<const int64_t> shape, const std::vector<mesh::Box>& boxes);

}  // namespace trireme::checkpoint
