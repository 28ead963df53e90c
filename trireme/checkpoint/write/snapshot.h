// A rank's data at the beginning of a save: its boxes, their digests and, for an asynchronous save,
// a copy of their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/file/digest.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

// Bytes in the host's memory, and the tensor that keeps them.
struct HostBytes {
  at::Tensor owner{};
  std::span<const std::byte> bytes{};
};

// A box that this rank stores.
struct OwnPiece {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  mesh::Box box{};
  std::vector<uint64_t> chunk_bytes{};  // see cut_into_chunks()
  std::vector<Digest> digests{};        // of each chunk; empty: not known before it is read
  int64_t num_nonfinite = 0;            // NaN and infinite values, as far as the digests are known
  at::Tensor local{};
  std::shared_ptr<OffloadedTensor> offloaded{};
  std::optional<HostBytes> copy{};
  // If set, only these rows of the box are stored, ascending indices of its first dimension. Then
  // the bytes, chunks and digests are those of these rows.
  std::optional<std::vector<int64_t>> rows{};
  // Reads rows of an offloaded tensor; see RowChanges.
  std::function<at::Tensor(std::span<const int64_t> rows)> read_rows{};
  // Whether the rows that change can be told, so that later saves may store only those.
  bool tells_changes = false;

  // Stores only these rows.
  void take_rows(std::vector<int64_t> changed);
  // Its bytes, row-major. Reads an offloaded tensor, and copies one of a device.
  HostBytes bytes() const;
  // Whether its bytes are brought into memory a few rows at a time.
  bool comes_by_rows() const;
  // Calls use(i, bytes) for each chunk in turn. If the tensor comes by rows, no more than a chunk
  // at a time is in memory, or two rows if they are longer than a chunk.
  void read_chunks(
      const std::function<void(size_t i, std::span<const std::byte> bytes)>& use) const;
};

// Memory for the copies of a save. It is kept for the next one, which needs the same.
class SnapshotMemory {
 public:
  // At least num_bytes, aligned to kIoAlignment. Those given out before are invalid.
  // pinned: for copies from a device
  // Throws: ConfigError when there is not enough memory
  std::span<std::byte> take(uint64_t num_bytes, bool pinned);
  const at::Tensor& owner() const { return memory_; }

 private:
  at::Tensor memory_;  // bytes
};

// Copies the pieces, all offloaded ones too.
// Threads: this process's compute threads
void copy_pieces(std::vector<OwnPiece>& pieces, SnapshotMemory& memory);

// The information about a piece that is needed before it is written.
enum class Scan { kDigests, kDigestsAndNonfinite };

// Scans copies, and pieces that are not offloaded.
// Threads: this one for copies; otherwise this process's compute threads
void scan_pieces(std::vector<OwnPiece>& pieces, Scan scan);

// Values that are NaN or infinite among elements of that dtype.
int64_t count_nonfinite(std::span<const std::byte> bytes, at::ScalarType dtype);

// Checks pieces that were scanned for non-finite values.
// Throws: ConfigError with the first of them that has NaN or infinite values
void require_finite_pieces(const std::vector<OwnPiece>& pieces);

}  // namespace trireme::checkpoint
