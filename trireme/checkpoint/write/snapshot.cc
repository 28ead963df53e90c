#include "trireme/checkpoint/write/snapshot.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/io/async_io.h"
#include "trireme/base/machine/multiversion.h"
#include "trireme/base/numbers.h"
#include "trireme/checkpoint/chunk/chunk.h"

namespace trireme::checkpoint {
namespace {

HostBytes host_bytes(const at::Tensor& tensor) {
  HostBytes host{.owner = tensor.detach().cpu().contiguous()};
  host.bytes = {static_cast<const std::byte*>(host.owner.const_data_ptr()), host.owner.nbytes()};
  return host;
}

// Calls `use(i, bytes)` for each of the piece's chunks: on the compute threads, or in this one.
template <typename Use>
void for_each_chunk(const OwnPiece& piece, std::span<const std::byte> bytes, bool in_parallel,
                    const Use& use) {
  std::vector<uint64_t> begins;
  uint64_t begin = 0;
  for (const uint64_t num_bytes : piece.chunk_bytes) {
    begins.push_back(begin);
    begin += num_bytes;
  }
  const auto run = [&](int64_t first, int64_t end) {
    for (auto i = static_cast<size_t>(first); i < static_cast<size_t>(end); ++i)
      use(i, bytes.subspan(begins[i], piece.chunk_bytes[i]));
  };
  if (!in_parallel) return run(0, std::ssize(begins));
  at::parallel_for(0, std::ssize(begins), 1, run);
}

// The chunks of rows that are longer than a chunk. One may have parts of two rows.
void read_long_rows(const OwnPiece& piece, uint64_t row_bytes,
                    const std::function<void(size_t i, std::span<const std::byte> bytes)>& use) {
  HostBytes held;
  uint64_t first = 0, end = 0;  // of the rows that are held
  uint64_t at = 0;
  for (size_t i = 0; i < piece.chunk_bytes.size(); ++i) {
    const uint64_t begin_row = at / row_bytes;
    const uint64_t end_row = (at + piece.chunk_bytes[i] - 1) / row_bytes + 1;
    if (begin_row < first || end_row > end) {
      held = {};  // before the next ones are made
      held = host_bytes(piece.offloaded->read_rows(static_cast<int64_t>(begin_row),
                                                   static_cast<int64_t>(end_row)));
      first = begin_row;
      end = end_row;
    }
    use(i, held.bytes.subspan(at - first * row_bytes, piece.chunk_bytes[i]));
    at += piece.chunk_bytes[i];
  }
}

// Values whose exponent has all bits set. The count of a block fits the values' own width, so the
// A mask of the exponent finds both NaN and infinity, without a branch.
// loop needs no wider lanes.
template <typename Bits>
TRIREME_INLINE int64_t count_all_ones(std::span<const std::byte> bytes, Bits exponent) {
  constexpr size_t kBlock = 4096;
  int64_t count = 0;
  const size_t num = bytes.size() / sizeof(Bits);
  for (size_t begin = 0; begin < num; begin += kBlock) {
    const size_t end = std::min(num, begin + kBlock);
    // 4096 fits 16 bits, so the counter has the width of a lane.
    Bits in_block = 0;
    for (size_t i = begin; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, bytes.data() + i * sizeof(Bits), sizeof(Bits));
      in_block += (bits & exponent) == exponent ? 1 : 0;
    }
    count += static_cast<int64_t>(in_block);
  }
  return count;
}

TRIREME_MULTIVERSION int64_t count_nonfinite_64(std::span<const std::byte> bytes) {
  return count_all_ones<uint64_t>(bytes, 0x7ff0000000000000);
}
TRIREME_MULTIVERSION int64_t count_nonfinite_32(std::span<const std::byte> bytes) {
  return count_all_ones<uint32_t>(bytes, 0x7f800000);
}
TRIREME_MULTIVERSION int64_t count_nonfinite_16(std::span<const std::byte> bytes,
                                                uint16_t exponent) {
  return count_all_ones<uint16_t>(bytes, exponent);
}

}  // namespace

void OwnPiece::take_rows(std::vector<int64_t> changed) {
  const uint64_t row_bytes = row_bytes_of(box, c10::elementSize(dtype));
  const auto most = static_cast<size_t>(rows_per_chunk(row_bytes));
  chunk_bytes.clear();
  for (size_t at = 0; at < changed.size(); at += most)
    chunk_bytes.push_back(std::min(most, changed.size() - at) * row_bytes);
  rows = std::move(changed);
}

HostBytes OwnPiece::bytes() const {
  if (copy) return *copy;
  if (!rows) return host_bytes(offloaded ? offloaded->read() : local);
  if (offloaded) return host_bytes(read_rows(*rows));
  at::Tensor index = at::empty({std::ssize(*rows)}, at::TensorOptions().dtype(at::kLong));
  std::ranges::copy(*rows, index.mutable_data_ptr<int64_t>());
  return host_bytes(local.detach().index_select(0, index.to(local.device())));
}

bool OwnPiece::comes_by_rows() const {
  if (copy || !offloaded || !offloaded->goes_by_rows()) return false;
  const uint64_t row_bytes = row_bytes_of(box, c10::elementSize(dtype));
  // No patch has rows that are longer than a chunk.
  return row_bytes > 0 && (!rows || row_bytes <= kChunkBytes);
}

void OwnPiece::read_chunks(
    const std::function<void(size_t i, std::span<const std::byte> bytes)>& use) const {
  const uint64_t row_bytes = row_bytes_of(box, c10::elementSize(dtype));
  if (!comes_by_rows()) {
    const HostBytes host = bytes();
    return for_each_chunk(*this, host.bytes, /*in_parallel=*/false, use);
  }
  if (row_bytes > kChunkBytes) return read_long_rows(*this, row_bytes, use);
  int64_t first = 0;
  for (size_t i = 0; i < chunk_bytes.size(); ++i) {
    const auto count = static_cast<int64_t>(chunk_bytes[i] / row_bytes);
    const HostBytes host =
        host_bytes(rows ? read_rows(std::span(*rows).subspan(static_cast<size_t>(first),
                                                             static_cast<size_t>(count)))
                        : offloaded->read_rows(first, first + count));
    use(i, host.bytes);
    first += count;
  }
}

std::span<std::byte> SnapshotMemory::take(uint64_t num_bytes, bool pinned) {
  const uint64_t with_alignment = num_bytes + kIoAlignment;
  if (!memory_.defined() || memory_.nbytes() < with_alignment || memory_.is_pinned() != pinned) {
    // Freed before the larger block is made.
    memory_.reset();
    try {
      memory_ = at::empty({static_cast<int64_t>(with_alignment)},
                          at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
    } catch (const c10::Error&) {
      throw ConfigError(concat(
          "out of memory: a checkpoint in the background needs a copy of this rank's ", num_bytes,
          " bytes; checkpoint.mode = \"sync\" needs none, and a rank has less to save with "
          "--parallel.zero=3 and more ranks, or --offload.optimizer=disk"));
    }
  }
  auto* const data = static_cast<std::byte*>(memory_.mutable_data_ptr());
  const size_t skipped =
      round_up(reinterpret_cast<uintptr_t>(data), kIoAlignment) - reinterpret_cast<uintptr_t>(data);
  return {data + skipped, num_bytes};
}

void copy_pieces(std::vector<OwnPiece>& pieces, SnapshotMemory& memory) {
  uint64_t total = 0;
  for (const OwnPiece& piece : pieces) {
    for (const uint64_t num_bytes : piece.chunk_bytes) total += num_bytes;
  }
  // Pinned memory is only needed, and only there, with a device.
  const bool from_device =
      std::ranges::any_of(pieces, [](const OwnPiece& piece) { return piece.local.is_cuda(); });
  std::span<std::byte> left = memory.take(total, from_device);
  for (OwnPiece& piece : pieces) {
    const HostBytes source = piece.bytes();
    // Before the copy, because target and source have the same length.
    const std::span<std::byte> target = left.first(source.bytes.size());
    left = left.subspan(source.bytes.size());
    for_each_chunk(piece, source.bytes, /*in_parallel=*/true,
                   [&](size_t /*i*/, std::span<const std::byte> bytes) {
                     const auto begin = bytes.data() - source.bytes.data();
                     std::memcpy(target.data() + begin, bytes.data(), bytes.size());
                   });
    // The copy is the only source from now on. Holding the tensors would keep their memory alive.
    piece.copy = HostBytes{.owner = memory.owner(), .bytes = target};
    piece.local.reset();
    piece.offloaded.reset();
  }
}

void scan_pieces(std::vector<OwnPiece>& pieces, Scan scan) {
  for (OwnPiece& piece : pieces) {
    // Only read when it is written: it does not fit into memory.
    if (piece.offloaded) continue;
    const HostBytes source = piece.bytes();
    piece.digests.resize(piece.chunk_bytes.size());
    const bool counts = scan == Scan::kDigestsAndNonfinite && at::isFloatingType(piece.dtype);
    std::atomic<int64_t> found = 0;
    // Beside copies the training goes on, and needs the compute threads.
    const bool in_parallel = !piece.copy.has_value();
    for_each_chunk(piece, source.bytes, in_parallel,
                   [&](size_t i, std::span<const std::byte> bytes) {
                     piece.digests[i] = digest_of(bytes);  // and then it is in a core's cache
                     if (counts) found += count_nonfinite(bytes, piece.dtype);
                   });
    piece.num_nonfinite = found;
  }
}

int64_t count_nonfinite(std::span<const std::byte> bytes, at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return count_nonfinite_64(bytes);
    case at::kFloat: return count_nonfinite_32(bytes);
    case at::kBFloat16: return count_nonfinite_16(bytes, 0x7f80);
    case at::kHalf: return count_nonfinite_16(bytes, 0x7c00);
    default: return 0;
  }
}

void require_finite_pieces(const std::vector<OwnPiece>& pieces) {
  for (const OwnPiece& piece : pieces) {
    TRIREME_CHECK(piece.num_nonfinite == 0, "the checkpoint is refused: ", piece.num_nonfinite,
                  " of the ", piece.box.numel(), " values of \"", piece.name,
                  "\" that this rank has are NaN or infinite, as training has diverged; resume "
                  "from the last checkpoint with a lower optimizer.learning_rate or "
                  "train.skip_bad_steps, or save them with checkpoint.allow_nonfinite = true");
  }
}

}  // namespace trireme::checkpoint
