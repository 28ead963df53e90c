// Rows of a piece that were saved again: they replace those that its chunks have. Knows no file.
// Format: docs/checkpoint-format.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/chunk/chunk.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint::inline internal {

// A piece has at most this many. A save that would add one more writes the piece whole.
inline constexpr size_t kMaxPatches = 32;

// Chunks in pairs: values[i] has the rows whose numbers rows[i] has.
struct Patch {
  // Numbers of rows in the whole tensor, int64 little-endian, ascending over all chunks.
  std::vector<Chunk> rows{};
  // Of those rows, the elements that lie in the piece's box, row-major.
  std::vector<Chunk> values{};

  int64_t num_rows() const;
  bool operator==(const Patch&) const = default;
};

inline constexpr uint64_t kRowNumberBytes = sizeof(int64_t);

// The bytes of a row of the box, an index of its first dimension; 0 for a box without dimensions.
uint64_t row_bytes_of(const mesh::Box& box, size_t bytes_per_element);

// How many rows a pair of chunks has at most. Tensors of one table have the same number, and so
// share the chunks of row numbers, unless a row has more than 512 bytes.
int64_t rows_per_chunk(uint64_t row_bytes);

// Empty when the sizes of the chunks fit each other and the box, of which `rows_left` rows may be
// replaced; otherwise the problem. The chunks themselves must have been checked.
std::string patch_error(const Patch& patch, uint64_t row_bytes, int64_t rows_left);

// Appends the numbers in a chunk. Empty when they ascend, also after those before, and are rows of
// the box; otherwise the problem.
std::string take_rows(std::span<const std::byte> bytes, const mesh::Box& box,
                      std::vector<int64_t>& rows);

}  // namespace trireme::checkpoint::inline internal
