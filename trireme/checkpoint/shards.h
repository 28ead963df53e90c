// The tensor files of one checkpoint. They are opened when first needed, and used only after their
// checksums have been compared with the manifest.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint::inline internal {

class Shards {
 public:
  // `manifest` must outlive this.
  Shards(std::filesystem::path folder, const Manifest& manifest);

  // Opens the file and compares its size and header with the manifest.
  // Throws: CheckpointError when the file is missing, truncated or damaged; so do the others
  const SafetensorsReader& open(const std::string& file);

  // Reads the chunks of the piece that meet `part`, a box inside the piece's, and compares their
  // digests. Format 1 has one checksum for the whole piece.
  void check(const std::string& name, const TensorRecord& record, const Piece& piece,
             const mesh::Box& part);
  void check(const std::string& name, const TensorRecord& record, const Piece& piece) {
    check(name, record, piece, piece.box);
  }

  // Whether the chunk's stored bytes are those that its digest, or the checksum of what is packed,
  // says. false also when the file is missing, truncated or damaged, or may not be read.
  bool has_whole(const Chunk& chunk);

  // Copies the part of `record` that lies in `box` into `target`, whose shape is box.size. Reads
  // only the pieces that meet the box; check() them before.
  void copy_box(const std::string& name, const TensorRecord& record, const mesh::Box& box,
                at::Tensor target);

  // The whole tensor, after comparing its checksums.
  at::Tensor read(const std::string& name, const TensorRecord& record);

 private:
  std::span<const std::byte> stored(const Chunk& chunk);
  void check_entry(const std::string& name, const TensorRecord& record, const Piece& piece);
  // The piece's tensor; at least the chunks that meet `part` are filled in.
  at::Tensor view_piece(const std::string& name, const TensorRecord& record, const Piece& piece,
                        const mesh::Box& part);
  bool decode_into(const Chunk& chunk, const TensorRecord& record, std::span<std::byte> out);

  std::filesystem::path folder_;
  const Manifest& manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsReader>> readers_;
};

// Shards::read() of one tensor of the checkpoint `folder`. Closes the files again, so reading a
// checkpoint tensor by tensor keeps no more than one in memory.
// Throws: CheckpointError, also when there is no such tensor
at::Tensor read_tensor(const std::filesystem::path& folder, const Manifest& manifest,
                       const std::string& name);

}  // namespace trireme::checkpoint::inline internal
