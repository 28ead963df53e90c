// Boxes of a tensor. Checks shapes and boxes that someone else may have written, before anything is
// allocated or read: sizes must fit into 64 bits, and boxes must hold each element of a tensor
// exactly once. Cuts a tensor into parts that follow each other, so that one of any size goes
// through a bounded memory. Pure arithmetic; touches no tensor and no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// The most dimensions that libtorch's operators accept.
inline constexpr size_t kMaxDims = 64;

// The bytes of a tensor of this shape. Empty when it has more than kMaxDims dimensions, a negative
// length, or more bytes than fit into an int64_t. Lengths of 0 count as 1 for that, as in
// libtorch's strides.
std::optional<int64_t> num_bytes_of(std::span<const int64_t> shape, size_t bytes_per_element);

// For messages: "[3, 4]". Shows the first kMaxDims lengths, and "..." if a file claims more.
std::string shown_shape(std::span<const int64_t> shape);

// Empty when each element of a tensor of this shape lies in exactly one of the boxes. Otherwise the
// problem: "element [2, 0] lies in 2 pieces, expected 1". num_bytes_of() must have accepted the
// shape. Refuses boxes without elements. Sorts num_corners() numbers, and refuses more than 2^23.
std::string cover_error(std::span<const int64_t> shape, const std::vector<mesh::Box>& boxes);

// n 2^k for n boxes that cut k of the dimensions, or the largest number if that overflows. 0 for
// boxes with other numbers of dimensions. Takes any shape, even one that num_bytes_of() refuses.
size_t num_corners(std::span<const int64_t> shape, const std::vector<mesh::Box>& boxes);

inline constexpr uint64_t kPartBytes = uint64_t{16} << 20;

// Boxes whose elements, row-major, are the tensor's, in order: each element lies in one part. A
// part has at most `most_bytes`, or one element. Parts of whole rows begin where chunks do, so
// reading all of them reads few chunks twice. A tensor without elements is one part without them.
class TensorParts {
 public:
  TensorParts(std::vector<int64_t> shape, size_t bytes_per_element,
              uint64_t most_bytes = kPartBytes);

  int64_t size() const { return num_parts_; }
  mesh::Box at(int64_t index) const;

 private:
  std::vector<int64_t> shape_;
  size_t dim_ = 0;         // that is cut; of those before, a part has one index
  int64_t most_rows_ = 1;  // indices of `dim_` in a part
  int64_t parts_per_cut_ = 1;
  int64_t num_parts_ = 1;
};

}  // namespace trireme::checkpoint
