#include "trireme/checkpoint/write/chunk_index.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::checkpoint::inline internal {
namespace {

constexpr const char* kSharedPrefix = "shared-";

template <typename Use>
void for_each_chunk(const Manifest& manifest, const Use& use) {
  for (const auto& [name, record] : manifest.tensors) {
    for (const Piece& piece : record.pieces) {
      for (const Chunk& chunk : piece.chunks) use(chunk);
    }
  }
}

}  // namespace

void ChunkIndex::add(const Chunk& chunk) {
  if (chunk.num_bytes >= kLeastBytes) chunks_.emplace(chunk.digest, chunk);
}

const Chunk* ChunkIndex::find(const Digest& digest, uint64_t num_bytes) const {
  const auto found = chunks_.find(digest);
  return found != chunks_.end() && found->second.num_bytes == num_bytes ? &found->second : nullptr;
}

std::vector<size_t> shared_files(const Manifest& manifest) {
  std::vector<std::map<uint64_t, uint64_t>> used(manifest.files.size());  // begin -> bytes
  for_each_chunk(manifest, [&](const Chunk& chunk) {
    if (chunk.num_bytes >= ChunkIndex::kLeastBytes)
      used.at(chunk.file)[chunk.begin] = chunk.stored_bytes;
  });
  std::vector<size_t> files;
  for (size_t file = 0; file < used.size(); ++file) {
    uint64_t num_bytes = 0;
    for (const auto& [begin, stored_bytes] : used[file]) num_bytes += stored_bytes;
    if (num_bytes > 0 && num_bytes >= manifest.files[file].num_bytes / 2) files.push_back(file);
  }
  return files;
}

std::string shared_name(const FileRecord& file) {
  return concat(kSharedPrefix, file.header_checksum, ".safetensors");
}

bool is_shared(const FileRecord& file) { return file.name.starts_with(kSharedPrefix); }

void add_chunks(const Manifest& manifest, const std::vector<size_t>& files, size_t first,
                ChunkIndex& index) {
  std::map<size_t, size_t> numbers;
  for (size_t i = 0; i < files.size(); ++i) numbers[files[i]] = first + i;
  for_each_chunk(manifest, [&](Chunk chunk) {
    const auto number = numbers.find(chunk.file);
    if (number == numbers.end()) return;
    chunk.file = number->second;
    index.add(chunk);
  });
}

}  // namespace trireme::checkpoint::inline internal
