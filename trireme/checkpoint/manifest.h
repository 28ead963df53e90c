// What a checkpoint's folder holds: manifest.json, the one file that is written last and checks all
// the others. Never reads a tensor's bytes.
// Format: docs/checkpoint-format.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// Raised whenever an older program could misread a newer checkpoint.
inline constexpr int64_t kFormatVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";

// One box of a tensor, stored under the tensor's name in one file.
struct Piece {
  std::string file{};
  mesh::Box box{};
  std::string checksum{};  // of the box's bytes

  bool operator==(const Piece&) const = default;
};

struct TensorRecord {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> shape{};  // global
  // The layout at which it was saved; information alone, the pieces say where everything is.
  std::vector<mesh::Axis> axes{};
  std::vector<mesh::Placement> placements{};
  std::vector<Piece> pieces{};  // disjoint, together the whole tensor; empty boxes are left out

  int64_t num_elements() const;
  int64_t num_bytes() const;
  bool operator==(const TensorRecord&) const = default;
};

struct FileRecord {
  std::string name{};
  uint64_t num_bytes = 0;
  std::string header_checksum{};  // of the safetensors header with its length

  bool operator==(const FileRecord&) const = default;
};

struct Manifest {
  int64_t step = 0;
  int world_size = 1;        // ranks that saved
  std::string state = "{}";  // JSON text, the caller's
  std::map<std::string, TensorRecord> tensors{};
  std::vector<FileRecord> files{};

  bool operator==(const Manifest&) const = default;
};

// The text of manifest.json: valid JSON whose first line holds the checksum of all later bytes.
// Throws: CheckpointError when the state is not JSON or a name is not UTF-8
std::string to_text(const Manifest& manifest);

// `where` appears in errors.
// Throws: CheckpointError when a bit changed, when a newer program wrote it, when a key is missing
Manifest parse_manifest(const std::string& text, const std::filesystem::path& where);

// Reads `folder`/manifest.json and checks that every tensor's pieces make up the whole tensor.
// Throws: CheckpointError with the path
Manifest read_manifest(const std::filesystem::path& folder);

// What read_manifest() checks after parsing.
void check_pieces(const Manifest& manifest, const std::filesystem::path& where);

}  // namespace trireme::checkpoint
