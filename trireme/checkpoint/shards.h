// The tensor files of one checkpoint. They are opened when first needed. Their bytes are read once:
// each chunk is compared with its digest and used while it is in the processor's cache.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

class Shards {
 public:
  // `manifest` must outlive this. The records and pieces that are asked for are the manifest's.
  Shards(std::filesystem::path folder, const Manifest& manifest);

  // Opens the file and compares its size and header with the manifest.
  // Throws: CheckpointError when the file is missing, truncated or damaged; so do the others
  const SafetensorsReader& open(const std::string& file);

  // Reads the piece's chunks and patches and compares their digests. Format 1 has one checksum for
  // the whole piece.
  void check(const std::string& name, const TensorRecord& record, const Piece& piece);

  // Whether the chunk's stored bytes are those that its digest, or the checksum of what is packed,
  // says. false also when the file is missing, truncated or damaged, or may not be read.
  bool has_whole(const Chunk& chunk);

  // The chunk's bytes, after comparing their digest: in the mapped file, or in `scratch`, which the
  // caller keeps while it uses them. Aligned to the tensor's elements. May be called from several
  // threads once the chunk's file is open.
  std::span<const std::byte> read_chunk(const std::string& name, const TensorRecord& record,
                                        const Chunk& chunk, std::vector<std::byte>& scratch);

  // Reads the part of `record` that lies in `box` into `target`, whose shape is box.size. Compares
  // each chunk's digest just before it copies the chunk, so `target` may be written in part when
  // this throws.
  // Threads: this process's compute threads when `target` is on the CPU
  void read_box(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                const at::Tensor& target);

  // read_box() in two steps. First the pieces' chunks, except those for which `skips` is true.
  using Skips = std::function<bool(const Chunk& chunk)>;
  void read_chunks(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                   const at::Tensor& target, const Skips& skips = {});
  // Then, when all chunks are in `target`, the rows of the pieces' patches.
  void read_patches(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                    const at::Tensor& target);

  // The whole tensor.
  at::Tensor read(const std::string& name, const TensorRecord& record);

  // Bytes of tensors, as saved, whose digests were compared.
  int64_t num_bytes_read() const { return num_bytes_read_; }

 private:
  std::span<const std::byte> stored(const Chunk& chunk);
  std::span<const std::byte> read_chunk(const std::string& name, size_t bytes_per_element,
                                        const Chunk& chunk, std::vector<std::byte>& scratch);
  // Calls `read(i, scratch)` for i in [0, count).
  void for_each(int64_t count, bool in_parallel,
                const std::function<void(size_t i, std::vector<std::byte>& scratch)>& read);
  // Rows of one chunk of a patch.
  struct PatchRows {
    size_t chunk = 0;  // in Patch::rows
    std::vector<int64_t> rows{};
  };
  // The patch's rows by chunk, of the chunks that may have rows in [begin, end). The first time all
  // are read, to check that they ascend within the piece; later only those chunks.
  std::vector<PatchRows> rows_in(const std::string& name, const Piece& piece, const Patch& patch,
                                 int64_t begin, int64_t end);
  // In format 1. Its one checksum is of the whole piece, so a piece that is read in parts is
  // checked before the first.
  void check_entry(const std::string& name, const TensorRecord& record, const Piece& piece);

  std::filesystem::path folder_;
  const Manifest& manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsReader>> readers_;
  std::atomic<int64_t> num_bytes_read_ = 0;
  // The first and the last row of each chunk, of patches whose rows were checked.
  std::map<const Patch*, std::vector<std::pair<int64_t, int64_t>>> patch_spans_;
  std::set<const Piece*> checked_entries_;
};

// Calls `use(chunk, at)` for the chunks of `piece` that meet `part`, a box inside the piece's, each
// with where it begins in the piece's bytes.
void for_each_chunk(const Piece& piece, const mesh::Box& part, const TensorRecord& record,
                    const std::function<void(const Chunk& chunk, uint64_t at)>& use);

// Shards::read() of one tensor of the checkpoint `folder`. Closes the files again, so reading a
// checkpoint tensor by tensor keeps no more than one in memory.
// Throws: CheckpointError, also when there is no such tensor
at::Tensor read_tensor(const std::filesystem::path& folder, const Manifest& manifest,
                       const std::string& name);

}  // namespace trireme::checkpoint
