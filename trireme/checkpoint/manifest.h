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
// A step beyond it is none: 31 years at a thousand steps a second.
inline constexpr int64_t kMaxStep = 1'000'000'000'000;

// "step-000050", and back; -1 when `name` is no checkpoint's.
std::string folder_name(int64_t step);
int64_t step_of(const std::string& name);

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
  // Each element lies in exactly one of them, each file has at most one; empty ones are left out.
  std::vector<Piece> pieces{};

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

// `where` appears in errors. Sizes, counts and depth are bounded before anything is built.
// Throws: CheckpointError when a bit changed, when a newer program wrote it, when a value is
//         missing, of another type or out of its range
Manifest parse_manifest(const std::string& text, const std::filesystem::path& where);

// Reads `folder`/manifest.json and checks what no checksum can: a folder step-000050 holds step 50,
// file names stay in the folder, and of each tensor every element lies in exactly one piece.
// Throws: CheckpointError with the path; Error when this process may not read it
Manifest read_manifest(const std::filesystem::path& folder);

// The same of a text, but for the folder's name. `where` appears in errors.
Manifest parse_and_check_manifest(const std::string& text, const std::filesystem::path& where);

// What both check of files and pieces.
void check_pieces(const Manifest& manifest, const std::filesystem::path& where);

}  // namespace trireme::checkpoint
