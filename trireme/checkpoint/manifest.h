// The content of a checkpoint's folder: manifest.json, the file that is written last and checks all
// others. Never reads a tensor's bytes.
// Format: docs/design/checkpoint-format.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "trireme/checkpoint/chunk/chunk.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// Increase it whenever an older program could misread a newer checkpoint.
inline constexpr int64_t kFormatVersion = 3;
// Without patches nothing has changed since this one, so it is written: older programs read it.
inline constexpr int64_t kVersionWithoutPatches = 2;
inline constexpr const char* kManifestName = "manifest.json";
// Larger steps are refused: 31 years at a thousand steps a second.
inline constexpr int64_t kMaxStep = 1'000'000'000'000;

// "step-000050", and from the second epoch of a run on "step-000050-epoch-2", so that a writer that
// was paused while its successor began never writes to the successor's names.
std::string folder_name(int64_t step, int64_t epoch = 1);
// The reverse; -1 when `name` is not a checkpoint's name.
int64_t step_of(const std::string& name);
int64_t epoch_of(const std::string& name);

// One box of a tensor, stored as chunks.
struct Piece {
  mesh::Box box{};
  std::vector<Chunk> chunks{};  // of the box's bytes, in order; empty in format 1
  // In format 1 the file that has the whole box under the tensor's name, and the checksum of the
  // box's bytes. In a plan, the file of the rank that writes the box.
  std::string file{};
  std::string checksum{};
  // Since format 3: rows that replace those in `chunks`, in this order.
  std::vector<Patch> patches{};

  bool operator==(const Piece&) const = default;
};

// Calls `use` for all chunks that the piece has, those of its patches too.
template <typename AnyPiece, typename Use>
void for_all_chunks(AnyPiece& piece, const Use& use) {
  for (auto& chunk : piece.chunks) use(chunk);
  for (auto& patch : piece.patches) {
    for (auto& chunk : patch.rows) use(chunk);
    for (auto& chunk : patch.values) use(chunk);
  }
}

struct TensorRecord {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<int64_t> shape{};  // global
  // The layout at which it was saved. For information only; the pieces say where everything is.
  std::vector<mesh::Axis> axes{};
  std::vector<mesh::Placement> placements{};
  // Each element lies in exactly one piece; empty ones are left out. In format 1 each file has at
  // most one piece.
  std::vector<Piece> pieces{};

  int64_t num_elements() const;
  int64_t num_bytes() const;
  bool operator==(const TensorRecord&) const = default;
};

struct FileRecord {
  std::string name{};
  uint64_t num_bytes = 0;
  std::string header_checksum{};  // of the safetensors header including its length

  bool operator==(const FileRecord&) const = default;
};

struct Manifest {
  int64_t format_version = kVersionWithoutPatches;  // that it was written in; to_text() chooses
  int64_t step = 0;
  int world_size = 1;        // ranks that saved
  std::string state = "{}";  // JSON text from the caller
  std::map<std::string, TensorRecord> tensors{};
  std::vector<FileRecord> files{};

  bool operator==(const Manifest&) const = default;
};

// The text of manifest.json: valid JSON whose first line has the checksum of all later bytes.
// Throws: CheckpointError when the state is not JSON or a name is not UTF-8
std::string to_text(const Manifest& manifest);

// Bounds sizes, counts and depth before anything is built. `where` appears in errors.
// Throws: CheckpointError when a bit has changed, when a newer program wrote it, or when a value is
//         missing, of another type or out of range
Manifest parse_manifest(const std::string& text, const std::filesystem::path& where);

// Reads `folder`/manifest.json and checks what no checksum can: folder step-000050 holds step 50,
// file names stay in the folder, and every element of each tensor lies in exactly one piece.
// Throws: CheckpointError with the path; Error when this process may not read it
Manifest read_manifest(const std::filesystem::path& folder);

// The same for a text, without the folder's name. `where` appears in errors.
Manifest parse_and_check_manifest(const std::string& text, const std::filesystem::path& where);

// The checks of files and pieces that both functions above make.
void check_pieces(const Manifest& manifest, const std::filesystem::path& where);

}  // namespace trireme::checkpoint
