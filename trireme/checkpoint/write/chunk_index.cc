#include "trireme/checkpoint/write/chunk_index.h"

#include <algorithm>
#include <span>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

constexpr const char* kSharedPrefix = "shared-";

template <typename Use>
void for_each_chunk(const Manifest& manifest, const Use& use) {
  for (const auto& [name, record] : manifest.tensors) {
    for (const Piece& piece : record.pieces) for_all_chunks(piece, use);
  }
}

// By file, what a checkpoint uses of it.
class UsedBytes {
 public:
  explicit UsedBytes(size_t num_files) : begins_(num_files) {}

  void add(const Chunk& chunk) { begins_.at(chunk.file)[chunk.begin] = chunk.stored_bytes; }
  uint64_t of(size_t file) const {
    uint64_t num_bytes = 0;
    for (const auto& [begin, stored_bytes] : begins_[file]) num_bytes += stored_bytes;
    return num_bytes;
  }

 private:
  std::vector<std::map<uint64_t, uint64_t>> begins_;  // begin -> bytes
};

// The files on which pieces with patches stand, if half of them all together is used.
std::set<size_t> files_of_patched(const Manifest& manifest) {
  std::set<size_t> files;
  UsedBytes used(manifest.files.size());
  for (const auto& [name, record] : manifest.tensors) {
    for (const Piece& piece : record.pieces) {
      for_all_chunks(piece, [&](const Chunk& chunk) {
        used.add(chunk);
        if (!piece.patches.empty()) files.insert(chunk.file);
      });
    }
  }
  uint64_t num_used = 0, num_bytes = 0;
  for (const size_t file : files) {
    num_used += used.of(file);
    num_bytes += manifest.files[file].num_bytes;
  }
  return num_used >= num_bytes / 2 ? files : std::set<size_t>();
}

}  // namespace

void ChunkIndex::add(const Chunk& chunk, size_t bytes_per_element) {
  if (chunk.num_bytes < kLeastBytes) return;
  chunks_.emplace(chunk.digest, Known{chunk, bytes_per_element});
}

const Chunk* ChunkIndex::find(const Digest& digest, uint64_t num_bytes,
                              size_t bytes_per_element) const {
  const auto found = chunks_.find(digest);
  if (found == chunks_.end()) return nullptr;
  const auto& [chunk, width] = found->second;
  // Packed planes are cut by the element's size. Tensors of another size would unpack other bytes.
  const bool is_readable = chunk.codec != Codec::kZstdPlanes || width == bytes_per_element;
  return is_readable && chunk.num_bytes == num_bytes ? &chunk : nullptr;
}

std::vector<size_t> shared_files(const Manifest& manifest) {
  UsedBytes used(manifest.files.size());
  // A map by begin, because tensors may share a chunk, which counts once.
  for_each_chunk(manifest, [&](const Chunk& chunk) {
    if (chunk.num_bytes >= ChunkIndex::kLeastBytes) used.add(chunk);
  });
  const std::set<size_t> of_patched = files_of_patched(manifest);
  std::vector<size_t> files;
  for (size_t file = 0; file < manifest.files.size(); ++file) {
    const uint64_t num_bytes = used.of(file);
    const bool is_worth_it = num_bytes > 0 && num_bytes >= manifest.files[file].num_bytes / 2;
    if (is_worth_it || of_patched.contains(file)) files.push_back(file);
  }
  return files;
}

std::string shared_name(const FileRecord& file) {
  // The header has the digest of the file's bytes, so a name stands for one content.
  return concat(kSharedPrefix, file.header_checksum, ".safetensors");
}

bool is_shared(const FileRecord& file) { return file.name.starts_with(kSharedPrefix); }

void add_chunks(const Manifest& manifest, const std::vector<size_t>& files, size_t first,
                ChunkIndex& index) {
  std::map<size_t, size_t> numbers;
  for (size_t i = 0; i < files.size(); ++i) numbers[files[i]] = first + i;
  const auto add = [&](std::span<const Chunk> chunks, size_t bytes_per_element) {
    for (Chunk chunk : chunks) {
      // In files that are not linked.
      const auto number = numbers.find(chunk.file);
      if (number == numbers.end()) continue;
      chunk.file = number->second;
      index.add(chunk, bytes_per_element);
    }
  };
  for (const auto& [name, record] : manifest.tensors) {
    const size_t width = c10::elementSize(record.dtype);
    for (const Piece& piece : record.pieces) {
      add(piece.chunks, width);
      for (const Patch& patch : piece.patches) {
        add(patch.rows, kRowNumberBytes);
        add(patch.values, width);
      }
    }
  }
}

}  // namespace trireme::checkpoint
