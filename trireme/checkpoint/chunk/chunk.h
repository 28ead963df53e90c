// The bytes of a piece are cut into chunks, each with its digest. A chunk that an earlier
// checkpoint has stored is not stored again. Rows of a piece that were saved again are patches:
// they replace those that its chunks have. Knows no file.
// Format: docs/design/checkpoint-format.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/digest.h"
#include "trireme/checkpoint/chunk/codec.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

inline constexpr uint64_t kChunkBytes = uint64_t{1} << 20;  // of a whole chunk

struct Chunk {
  size_t file = 0;            // index in the manifest's files
  uint64_t begin = 0;         // from the end of the file's header
  uint64_t stored_bytes = 0;  // there
  uint64_t num_bytes = 0;     // of the piece
  Codec codec = Codec::kRaw;
  Digest digest{};                // of the piece's bytes
  std::string stored_checksum{};  // of the stored bytes, unless they are raw

  bool operator==(const Chunk&) const = default;
};

// The bytes of each chunk of a box, row-major. The cuts lie at whole rows whose numbers in the
// global tensor do not depend on the box, so that two layouts which split rows have most chunks in
// common. Only rows of more than kChunkBytes are cut themselves.
std::vector<uint64_t> cut_into_chunks(const mesh::Box& box, size_t bytes_per_element);

// "FILE BEGIN STORED BYTES CODEC DIGEST", as in a manifest, and " CHECKSUM" unless the codec is
// raw. The reverse is empty for any other text, and bounds no number.
std::string to_text(const Chunk& chunk);
std::optional<Chunk> parse_chunk(std::string_view text);

// A piece has at most this many. A save that would add one more writes the piece whole.
inline constexpr size_t kMaxPatches = 32;

// Chunks in pairs: values[i] has the rows whose numbers rows[i] has.
struct Patch {
  // Numbers of rows in the whole tensor, int64 little-endian, ascending over all chunks.
  std::vector<Chunk> rows{};
  // The elements of those rows within the piece's box, row-major.
  std::vector<Chunk> values{};

  int64_t num_rows() const;
  bool operator==(const Patch&) const = default;
};

inline constexpr uint64_t kRowNumberBytes = sizeof(int64_t);

// The bytes of a row of the box, an index of its first dimension; 0 for a box without dimensions.
uint64_t row_bytes_of(const mesh::Box& box, size_t bytes_per_element);

// Maximum number of rows of a pair of chunks. Tensors of one table have the same number, and so
// share the chunks of row numbers, unless a row has more than 512 bytes.
int64_t rows_per_chunk(uint64_t row_bytes);

// Empty when the sizes of the chunks match each other and the box; otherwise the problem. At most
// `rows_left` rows of the box may be replaced. The chunks themselves must have been checked.
std::string patch_error(const Patch& patch, uint64_t row_bytes, int64_t rows_left);

// Appends the numbers in a chunk. Empty when they ascend, also after those before, and are rows of
// the box; otherwise the problem.
std::string take_rows(std::span<const std::byte> bytes, const mesh::Box& box,
                      std::vector<int64_t>& rows);

}  // namespace trireme::checkpoint
