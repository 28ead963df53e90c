// Index of the chunks that are already stored, with their places. Thread safety: as a standard
// container.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "trireme/base/file/digest.h"
#include "trireme/checkpoint/chunk/chunk.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::checkpoint {

class ChunkIndex {
 public:
  // Smaller ones are always stored again, so that no file stays for the sake of a few bytes.
  static constexpr uint64_t kLeastBytes = 4096;

  // bytes_per_element: of the tensor whose chunk it is, by which a packed chunk is unpacked
  void add(const Chunk& chunk, size_t bytes_per_element);
  // The stored chunk with these bytes, for a tensor with such elements; null: none.
  const Chunk* find(const Digest& digest, uint64_t num_bytes, size_t bytes_per_element) const;

 private:
  struct Hash {
    size_t operator()(const Digest& digest) const { return digest.low; }
  };
  struct Known {
    Chunk chunk;
    size_t bytes_per_element;
  };
  std::unordered_map<Digest, Known, Hash> chunks_;
};

// The files of a checkpoint from which another may take chunks: those of whose data it uses at
// least half itself. Otherwise old files would stay for ever smaller parts of them. The files on
// which pieces with patches stand count together, because such a piece needs all of its own.
std::vector<size_t> shared_files(const Manifest& manifest);

// The name under which a later checkpoint has the file.
std::string shared_name(const FileRecord& file);
// Whether a checkpoint has the file from another one.
bool is_shared(const FileRecord& file);

// Adds the chunks of `manifest` in `files` to the index, where files[i] has the number first + i.
void add_chunks(const Manifest& manifest, const std::vector<size_t>& files, size_t first,
                ChunkIndex& index);

}  // namespace trireme::checkpoint
