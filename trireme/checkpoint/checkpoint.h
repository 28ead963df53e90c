// Sharded checkpoints: saved at any layout, loaded at any other, committed whole or not at all,
// every byte checked on load. Never builds a global tensor to do so, and never leaves a rank
// waiting for one that failed.
// Format: docs/checkpoint-format.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/agreement.h"
#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// A tensor whose elements are not in memory, but on a disk, say.
class OffloadedTensor {
 public:
  virtual ~OffloadedTensor() = default;
  // Throws: Error when the place fails; so does write()
  virtual at::Tensor read() const = 0;
  // values: contiguous, on the CPU, of the same shape and dtype
  virtual void write(const at::Tensor& values) = 0;
};

// A tensor and where it lies. `local` has the shape of the layout's box of `rank`; the layout may
// lie inside another, whose replicas have the same values: the first of them saves. No placement
// may be partial.
struct Entry {
  std::string name;
  at::Tensor local{};
  mesh::Layout layout;
  // This rank's number in the layout; kInnermost: the layout's axes are the innermost ones of the
  // mesh, and it is world_rank % layout.num_ranks().
  static constexpr int kInnermost = -1;
  int rank = kInnermost;
  // When set, `local` is a meta tensor, its shape and dtype alone. save() and load() bring such
  // tensors into memory one at a time.
  std::shared_ptr<OffloadedTensor> offloaded{};

  // Of the whole tensor.
  // Throws: CheckpointError when the layout does not fit into a world of so many ranks, or `local`
  //         into the layout
  mesh::Box box(int world_rank, int world_size) const;
};

struct SaveOptions {
  // How many checkpoints stay, the newest by step; older ones go once the new one is on the disk.
  // 0 keeps all.
  int keep = 3;
  // false is for tests: a power cut may then lose or tear the checkpoint.
  bool fsync = true;
  // Told while ranks wait for others' disks.
  OnWait on_wait{};
};

// Writes `root`/step-000050. It appears at once and complete: a crash, a kill or a full disk at any
// instant leaves the earlier checkpoints as they were. A checkpoint of the same step is replaced.
// entries: this rank's tensors; ranks may hold different ones. state: JSON text, rank 0's is kept.
// Ranks wait for each other's disks however slow they are (agreement.h).
// Comm:       names, boxes and checksums; no tensor data
// Collective: every rank of `world`, all seeing `root` as the same folder
// Throws:     on all ranks the failing rank's reason: ConfigError when there is no permission or no
//             room, saying what it needs and what is free; Error when it cannot be written for
//             another reason, a bad disk say; CheckpointError when the entries make no checkpoint;
//             CommError when a peer is lost
void save(const std::filesystem::path& root, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, const SaveOptions& options = {});

// Folders of complete checkpoints in `root`, oldest step first; none when `root` does not exist.
// Throws: CheckpointError when `root` is no folder; Error when it or a checkpoint in it cannot be
//         looked at (no permission, a bad disk)
std::vector<std::filesystem::path> list(const std::filesystem::path& root);
std::optional<std::filesystem::path> latest(const std::filesystem::path& root);

struct LoadOptions {
  // false: names that only one side has are left alone. Shapes and dtypes must agree always.
  bool strict = true;
  // Tensors of the checkpoint whose names have this prefix are ignored, even when strict. Empty:
  // none.
  std::string ignored{};
  // Told while ranks wait for others' disks.
  OnWait on_wait{};
};

// Copies the checkpoint `folder` into the entries' tensors, whatever the layout it was saved at.
// Returns the state. Nothing is modified, on any rank, unless everything every rank needs is there
// and its checksums are right. Every element comes from exactly one piece, whose checksum was
// compared. A file is opened once: one that another replaces meanwhile is not seen. One that is
// rewritten in place while it is read, as nothing of ours does, may give other bytes than checked.
// Comm:       names; no tensor data: each rank reads the pieces that meet its boxes
// Collective: every rank of `world`
// Throws:     on all ranks: CheckpointError, listing what differs; Error when a rank may not read
//             it; CommError when a peer is lost
std::string load(const std::filesystem::path& folder, std::span<Entry> entries,
                 comm::Communicator& world, const LoadOptions& options = {});

// One tensor, or all of them, whole; not collective.
// Throws: CheckpointError
at::Tensor load_tensor(const std::filesystem::path& folder, const std::string& name);
std::map<std::string, at::Tensor> load_global(const std::filesystem::path& folder);

struct VerifyReport {
  int64_t num_files = 0;
  int64_t num_pieces = 0;
  int64_t num_bytes = 0;                // of tensor data that was read
  std::vector<std::string> problems{};  // one line each; empty when every bit is as saved
};
// Reads everything and compares all checksums; goes on after a problem.
// Throws: Error when this process cannot open a file that is there: no problem of the checkpoint
VerifyReport verify(const std::filesystem::path& folder);

struct TensorSummary {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t num_bytes = 0;
  int64_t num_pieces = 0;
  std::string layout;  // "data=2 sharded(0), tensor=1 replicated"
};
struct Summary {
  int64_t step = 0;
  int world_size = 0;  // ranks that saved it
  int64_t num_elements = 0;
  int64_t num_bytes = 0;
  std::string state{};
  std::vector<TensorSummary> tensors{};
};
// Reads the manifest alone.
// Throws: CheckpointError
Summary inspect(const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
