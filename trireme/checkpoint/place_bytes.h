// Copies a range of a box's bytes, or some of its rows, as chunks have them, into a tensor that
// holds another box.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// Elements [first, last) of a tensor of that shape, row-major, as boxes whose elements follow each
// other. Calls `use(block, element)` for each, in order, with its first element.
using UseBlock = std::function<void(const mesh::Box& block, int64_t element)>;
void for_each_block(const std::vector<int64_t>& shape, int64_t first, int64_t last,
                    const UseBlock& use);

// Bytes of a piece's box.
struct PieceBytes {
  const mesh::Box& box;
  at::ScalarType dtype = at::kFloat;
  uint64_t at = 0;                   // where they begin in the box's
  std::span<const std::byte> bytes;  // whole elements, aligned to their size
};

// Copies the elements that lie in `box` too into `target`, whose shape is box.size. Converts them
// to its dtype and moves them to its device.
void place_bytes(const PieceBytes& from, const mesh::Box& box, const at::Tensor& target);

// Rows of a piece's box, indices of its first dimension.
struct PieceRows {
  const mesh::Box& box;
  at::ScalarType dtype = at::kFloat;
  std::span<const int64_t> rows;     // in the whole tensor, ascending
  std::span<const std::byte> bytes;  // of those rows, aligned to an element's size
};

// The same for the elements of these rows.
void place_rows(const PieceRows& from, const mesh::Box& box, const at::Tensor& target);

}  // namespace trireme::checkpoint
