// Keeps what recompute() keeps of a forward, the inputs of blocks, on the host of a GPU or on a
// disk until backward.
// Source: Rajbhandari et al. 2021, arXiv:2104.07857 (ZeRO-Infinity), section 5.1.2
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/io/async_io.h"
#include "trireme/base/io/scratch_file.h"
#include "trireme/base/machine/memory_ledger.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/train/offload/offload_config.h"

namespace trireme::train {

// Null for kNone, and for kHost where the activations are on the CPU anyway.
// Throws: ConfigError when the folder cannot be written
std::shared_ptr<model::InputStore> make_activation_store(OffloadPlace place,
                                                         const std::filesystem::path& folder,
                                                         at::Device device);

// On a disk, in one file that grows with what is kept at a time. A tensor is copied to a buffer
// and written while forward computes on; backward takes them in the reverse order, so the one
// before is read meanwhile. The last ones come back from the buffers without a read. Thread safe.
// Memory: kNumBuffers buffers of the largest tensor's size
class DiskActivations final : public model::InputStore {
 public:
  static constexpr size_t kNumBuffers = 4;
  // Smaller tensors are not worth a request; they stay in memory.
  static constexpr int64_t kFewestBytes = 4096;

  // use_uring: false is for tests
  explicit DiskActivations(const std::filesystem::path& folder, bool use_uring = true);
  ~DiskActivations() override;

  // Throws: ConfigError when the disk has no room for it, Error when it fails; so does take()
  int64_t put(const at::Tensor& input) override;
  at::Tensor take(int64_t number) override;
  void drop(int64_t number) noexcept override;

  int64_t file_bytes() const { return static_cast<int64_t>(file_bytes_); }
  int64_t num_kept() const { return static_cast<int64_t>(kept_.size()); }

 private:
  struct Buffer {
    std::byte* data = nullptr;
    std::optional<int64_t> number{};          // of the tensor whose bytes it has
    std::optional<AsyncIo::Ticket> ticket{};  // of their transfer, while it is under way
    uint64_t last_use = 0;
  };
  struct Extent {
    uint64_t offset = 0;
    uint64_t num_bytes = 0;
  };
  struct Kept {
    at::Tensor in_memory{};  // a small one
    std::vector<int64_t> shape{};
    at::TensorOptions options{};
    at::MemoryFormat format = at::MemoryFormat::Contiguous;
    size_t num_bytes = 0;
    Extent extent{};
    Buffer* buffer = nullptr;
  };

  void resize_buffers(size_t num_bytes);
  void unmap() noexcept;
  Buffer& first_used();
  Buffer& free_buffer();
  void finish(Buffer& buffer);
  void let_go(Buffer& buffer);
  Extent take_extent(size_t num_bytes);
  void start_read(Kept& kept, int64_t number, Buffer& buffer);
  void read_ahead(int64_t number);
  void forget(std::map<int64_t, Kept>::iterator kept);

  std::mutex mutex_;
  std::unique_ptr<ScratchFile> file_;
  std::vector<Buffer> buffers_{kNumBuffers};
  MemoryCharge charge_;  // for them
  size_t bytes_per_buffer_ = 0;
  uint64_t file_bytes_ = 0;
  uint64_t num_uses_ = 0;
  int64_t next_number_ = 0;
  std::map<int64_t, Kept> kept_;
  std::multimap<uint64_t, uint64_t> free_extents_;  // offsets by size
  std::unique_ptr<AsyncIo> io_;                     // destroyed first
};

}  // namespace trireme::train
