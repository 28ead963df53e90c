// Writes the boxes of one rank into its file, except the chunks that are stored already.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/chunk/codec.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/write/chunk_index.h"
#include "trireme/checkpoint/write/snapshot.h"

namespace trireme::checkpoint {

// Files that a checkpoint has from an earlier one, beside the new file, and the chunks in them;
// Chunk::file counts these files.
struct SharedFiles {
  std::vector<FileRecord> files{};
  // By file: whether its bytes are known to be right. Otherwise a chunk is read before it is used,
  // and written again if it is damaged.
  std::vector<bool> are_whole{};
  ChunkIndex chunks{};
  // By tensor, the pieces that are patched: those of which only some rows are written.
  std::map<std::string, Piece> bases{};
};

struct ShardOptions {
  Compression compression = Compression::kNone;
  bool fsync = true;
};

// Returns the chunks of the pieces. In the result's files come `shared` first, then the new file,
// unless nothing had to be written. A box whose chunks are all new and raw is an entry of the
// safetensors file under its own name; any other one's new chunks are bytes under NAME@chunks. A
// piece with only some rows given becomes the one in shared.bases plus a patch.
// Threads: this one and those of AsyncIo
// Throws: Error when the file cannot be written; CommError from peers.check()
Manifest write_shard(const std::filesystem::path& path, std::span<const OwnPiece* const> pieces,
                     const SharedFiles& shared, const ShardOptions& options, const Peers& peers);

}  // namespace trireme::checkpoint
