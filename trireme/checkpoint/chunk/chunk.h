// The bytes of a piece are cut into chunks, each with its digest. A chunk that an earlier
// checkpoint has stored is not stored again.
// Format: docs/checkpoint-format.md
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/file/digest.h"
#include "trireme/checkpoint/chunk/codec.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint::inline internal {

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

}  // namespace trireme::checkpoint::inline internal
