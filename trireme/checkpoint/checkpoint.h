// Sharded checkpoints. They are saved at any layout and loaded at any other, committed whole or not
// at all, and every byte is checked on load. Never builds a global tensor, and never leaves a rank
// waiting for one that failed.
// Format: docs/design/checkpoint-format.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/chunk/codec.h"
#include "trireme/checkpoint/sites.h"
#include "trireme/comm/communicator.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// A tensor whose elements are not in memory but, for example, on a disk.
class OffloadedTensor {
 public:
  virtual ~OffloadedTensor() = default;
  // Throws: Error when the storage fails; so does write()
  virtual at::Tensor read() const = 0;
  // values: contiguous, on the CPU, with the same shape and dtype
  virtual void write(const at::Tensor& values) = 0;

  // Whether the functions below bring only some rows of the first dimension into memory. Then
  // save() and load() use them.
  virtual bool goes_by_rows() const { return false; }
  // Rows [begin, end).
  virtual at::Tensor read_rows(int64_t begin, int64_t end) const {
    return read().narrow(0, begin, end - begin);
  }
  // values: of the rows from `begin` on
  virtual void write_rows(int64_t begin, const at::Tensor& values) {
    const at::Tensor all = read();
    all.narrow(0, begin, values.size(0)).copy_(values);
    write(all);
  }
  // Which of the tensor's `num_rows` rows a load brings here, ascending; the others are somebody
  // else's. Only if it goes by rows.
  virtual std::vector<mesh::Range> wanted_rows(int64_t num_rows) const { return {{0, num_rows}}; }
};

// Tells which rows of a tensor, indices of its first dimension, have changed since a moment. Then a
// Saver stores only those where it can (docs/design/checkpoint-format.md, "Changed rows").
struct RowChanges {
  // Whose changes they are; null: unknown, so that all rows may have changed. Tensors that change
  // together have the same one.
  std::shared_ptr<const void> source{};
  // Remembers this moment and returns its mark. Marks of one source grow.
  std::function<int64_t()> mark{};
  // Rows of `local` that may have changed since then, ascending; nothing when that is not known any
  // more.
  std::function<std::optional<std::vector<int64_t>>(int64_t mark)> since{};
  // Reads these rows of an offloaded tensor, contiguous on the CPU. Without it, a save reads all
  // rows.
  std::function<at::Tensor(std::span<const int64_t> rows)> read{};
};

// A tensor and its layout. `local` has the shape of `rank`'s box in the layout. The layout may lie
// inside another one, whose replicas have the same values; the first of them saves. No placement
// may be partial.
struct Entry {
  std::string name;
  at::Tensor local{};
  mesh::Layout layout;
  // This rank's number in the layout. kInnermost: the layout's axes are the innermost ones of the
  // mesh, and the number is world_rank % layout.num_ranks().
  static constexpr int kInnermost = -1;
  int rank = kInnermost;
  // If set, `local` is a meta tensor that only has shape and dtype. save() and load() bring such
  // tensors into memory one at a time, or some rows at a time.
  std::shared_ptr<OffloadedTensor> offloaded{};
  RowChanges changes{};

  // The box within the whole tensor.
  // Throws: CheckpointError when the layout does not fit a world of that size, or `local` does not
  //         fit the layout
  mesh::Box box(int world_rank, int world_size) const;
};

struct SaveOptions {
  // Number of checkpoints to keep, the newest by epoch and step. Older ones are removed once the
  // new one is on the disk. 0 keeps all.
  int keep = 3;
  // false is for tests: a power failure may then lose or damage the checkpoint.
  bool fsync = true;
  // Chunks that the newest checkpoint of the folder has are not written again: the files that have
  // them are linked. false: every checkpoint has its own bytes.
  bool incremental = true;
  // With `incremental`: other folders like `root`, on the same file system, whose newest
  // checkpoints' chunks are not written again either. One that is not there is ignored.
  std::vector<std::filesystem::path> shared_roots{};
  Compression compression = Compression::kNone;
  // Refuses to save if ranks that hold the same box of a tensor have different bits. Offloaded
  // tensors are not compared.
  bool compare_replicas = true;
  // false: refuses to save NaN and infinite values, except in offloaded tensors that are
  // written without a copy.
  bool allow_nonfinite = true;
  // Unset: all ranks see `root` as the same folder. Otherwise each site has its own, where its
  // ranks write; the checkpoint is whole over all sites (transfer/site_checkpoints.h).
  std::optional<Sites> sites{};
  // With `sites`: how many sites after a site keep its files too.
  int replicas = 0;
  // Counts the times at which another group of ranks may have begun to write to `root`. A save
  // never touches what a later epoch has written; the checkpoint's name has it from 2 on.
  int64_t epoch = 1;
  // Called while ranks wait for others' disks.
  OnWait on_wait{};
};

// Writes `root`/step-000050. It appears at once and complete: a crash, a kill or a full disk at any
// moment leaves the earlier checkpoints as they were. Replaces a checkpoint of the same step.
// entries: this rank's tensors; they may differ between ranks. state: JSON text; rank 0's is kept.
// Ranks wait for each other's disks however slow they are (agreement.h).
// Comm:       names, boxes and digests; with options.replicas, each file to as many sites
// Collective: every rank of `world`
// Throws:     on all ranks the failing rank's error: ConfigError when permission or room is
//             missing, with the room needed and the room free; Error when it cannot be written for
//             another reason, such as a bad disk, or when replicas differ, with the rank;
//             CheckpointError when the entries do not form a checkpoint; CommError when a peer is
//             lost
void save(const std::filesystem::path& root, int64_t step, std::span<const Entry> entries,
          const std::string& state, comm::Communicator& world, const SaveOptions& options = {});

// The destination of a checkpoint, and its options.
struct SaveTarget {
  std::filesystem::path root;
  SaveOptions options;
};

// Folders of complete checkpoints in `root`, those of earlier epochs first, then by step; none when
// `root` does not exist.
// Throws: CheckpointError when `root` is not a folder; Error when it or a checkpoint in it cannot
//         be read (no permission, a bad disk)
std::vector<std::filesystem::path> list(const std::filesystem::path& root);
std::optional<std::filesystem::path> latest(const std::filesystem::path& root);

struct LoadOptions {
  // false: names that only one side has are ignored. Shapes must always agree.
  bool strict = true;
  // true: values are converted to the entries' dtypes. false: dtypes must agree.
  bool converts = false;
  // The checkpoint's tensors whose names have one of these prefixes are ignored, even when
  // `strict`.
  std::vector<std::string> ignored{};
  // Called while ranks wait for others' disks.
  OnWait on_wait{};
  // If set, becomes the bytes of tensors that this rank has read from files.
  int64_t* num_bytes_read = nullptr;
};

// Reads the checkpoint `folder` into the entries' tensors, whatever the layout it was saved at.
// Returns the state. Every byte is read once and compared with its digest just before it is copied.
// So a checkpoint that does not fit the entries changes nothing on any rank, and one that is
// damaged may leave any values in their tensors: load another, or drop them. Each file is opened
// once, so replacing a file meanwhile has no effect. A file that is rewritten in place while it is
// read, which our code never does, may give bytes that were not checked.
// Where ranks share memory (thread, shm, and the hosts of hierarchical), what several ranks of a
// host want is read by one of them and copied by the others. Over gloo, mpi and nccl alone each
// rank reads all that it wants.
// Comm:       names and boxes; on each host, over its shared memory, chunks that several ranks want
// Memory:     two blocks of 2 MiB per rank that reads for others
// Collective: every rank of `world`
// Throws:     on all ranks: CheckpointError, listing what differs; Error when a rank may not read
//             the checkpoint; CommError when a peer is lost
std::string load(const std::filesystem::path& folder, std::span<Entry> entries,
                 comm::Communicator& world, const LoadOptions& options = {});

// One tensor, or all of them, whole. Not collective.
// Throws: CheckpointError
at::Tensor load_tensor(const std::filesystem::path& folder, const std::string& name);
std::map<std::string, at::Tensor> load_global(const std::filesystem::path& folder);

struct VerifyReport {
  int64_t num_files = 0;
  int64_t num_pieces = 0;
  int64_t num_bytes = 0;                // of tensor data read
  std::vector<std::string> problems{};  // one line each; empty when every bit is as it was saved
};
// Reads everything and compares all checksums. Continues after a problem.
// Throws: Error when this process cannot open a file that exists; that is not a problem of the
//         checkpoint
VerifyReport verify(const std::filesystem::path& folder);

struct TensorSummary {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  int64_t num_bytes = 0;
  int64_t num_pieces = 0;
  std::string layout;  // "data=2 sharded(0), tensor=1 replicated"
  // Rows that were saved again in place of all: in how many saves at most, and their bytes.
  int64_t num_patches = 0;
  int64_t patched_bytes = 0;
};
struct Summary {
  int64_t step = 0;
  int world_size = 0;  // ranks that saved it
  int64_t num_elements = 0;
  int64_t num_bytes = 0;
  std::string state{};
  std::vector<TensorSummary> tensors{};
};
// Reads only the manifest.
// Throws: CheckpointError
Summary inspect(const std::filesystem::path& folder);

}  // namespace trireme::checkpoint
