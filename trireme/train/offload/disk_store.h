// States in a file of this rank. Only three chunks are in memory: the current one, the one read
// ahead and the one written back. A visit may return before its last chunks are written.
// Source: Rajbhandari et al. 2021, arXiv:2104.07857 (ZeRO-Infinity), section 5
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/io/async_io.h"
#include "trireme/base/io/scratch_file.h"
#include "trireme/base/machine/memory_ledger.h"
#include "trireme/train/offload/state_store.h"

namespace trireme::train {

class DiskStore : public StateStore {
 public:
  static constexpr size_t kNumBuffers = 3;

  // Throws: ConfigError when the folder cannot be written or has too little room
  DiskStore(const OffloadOptions& options, StatePlan plan);
  ~DiskStore() override;

  void visit(std::span<const size_t> chunks, const Visit& visit) override;
  // The entry's tensor is read on request, so one more is in memory at a time.
  void describe(size_t tensor, checkpoint::Entry& entry) override;

  // Waits until earlier visits are written back.
  void flush();
  // Reads the tensor to the CPU; write() is the reverse.
  at::Tensor read(size_t tensor);
  void write(size_t tensor, const at::Tensor& values);

  int64_t file_bytes() const { return file_bytes_; }
  int64_t buffer_bytes() const;  // of all buffers
  std::string io_name() const { return io_->name(); }
  bool is_direct() const { return file_->io().is_direct; }

 private:
  // Pieces lie chunk by chunk, within a chunk in its own order. Each begins at a multiple of
  // kIoAlignment.
  struct Place {
    size_t chunk = 0;
    uint64_t in_chunk = 0;  // start of the piece
    StatePiece piece;
  };
  struct Extent {
    uint64_t offset = 0;  // in the file
    uint64_t num_bytes = 0;
    std::vector<Place> places{};  // in the order of the chunk's pieces
  };
  struct Buffer {
    std::byte* data = nullptr;
    size_t chunk = 0;  // of the request in flight
    std::optional<AsyncIo::Ticket> ticket{};
  };

  void place_pieces();
  void map_buffers();
  Buffer& start_read(size_t chunk);
  void start_write(Buffer& buffer, size_t chunk);
  void finish(Buffer& buffer);
  void finish_all() noexcept;
  at::Tensor view(const Buffer& buffer, const Place& place) const;
  // Transfers one piece of a tensor through the first buffer.
  void transfer_now(IoKind kind, const Place& place);

  const StatePlan plan_;
  std::vector<Extent> extents_;                // one per chunk
  std::vector<std::vector<Place>> places_of_;  // one per tensor
  int64_t file_bytes_ = 0;
  size_t bytes_per_buffer_ = 0;
  std::array<Buffer, kNumBuffers> buffers_;
  MemoryCharge charge_;  // for them
  size_t next_buffer_ = 0;
  std::unique_ptr<ScratchFile> file_;
  std::unique_ptr<AsyncIo> io_;  // destroyed first
};

}  // namespace trireme::train
