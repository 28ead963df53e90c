#include "trireme/train/offload/activation_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <sys/mman.h>

#include "trireme/base/error.h"
#include "trireme/base/numbers.h"

namespace trireme::train {

// A tensor's bytes are in the file, in a buffer, or in both. put() takes the buffer that has not
// been used for longest and whose write has ended, or waits for it. The buffers then have the last
// tensors of a forward, which backward wants first. While backward recomputes a block, the inputs
// of the blocks before it are read into buffers that nobody wants any more.
//
// An extent of the file is free again once its tensor is taken and no write to it is under way.

namespace {

// In the memory of a GPU's host. Copies run in the order of the stream that computes.
class HostActivations final : public model::InputStore {
 public:
  int64_t put(const at::Tensor& input) override {
    const std::lock_guard lock(mutex_);
    at::Tensor host = at::empty(input.sizes(), input.options().device(at::kCPU).pinned_memory(true),
                                input.suggest_memory_format());
    host.copy_(input, /*non_blocking=*/true);
    kept_.emplace(next_number_, std::pair(std::move(host), input.device()));
    return next_number_++;
  }
  at::Tensor take(int64_t number) override {
    const std::lock_guard lock(mutex_);
    auto kept = kept_.extract(number);
    TRIREME_ASSERT(!kept.empty(), "input ", number, " is not kept");
    const auto& [host, device] = kept.mapped();
    return host.to(device, /*non_blocking=*/true);
  }
  void drop(int64_t number) noexcept override {
    const std::lock_guard lock(mutex_);
    kept_.erase(number);
  }

 private:
  std::mutex mutex_;
  int64_t next_number_ = 0;
  std::map<int64_t, std::pair<at::Tensor, at::Device>> kept_;
};

// Large copies take as long as the write without it.
void copy_bytes(std::byte* to, const std::byte* from, size_t num_bytes) {
  constexpr int64_t kGrain = 1 << 20;
  at::parallel_for(0, static_cast<int64_t>(num_bytes), kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace

std::shared_ptr<model::InputStore> make_activation_store(OffloadPlace place,
                                                         const std::filesystem::path& folder,
                                                         at::Device device) {
  if (place == OffloadPlace::kDisk) return std::make_shared<DiskActivations>(folder);
  if (place == OffloadPlace::kHost && !device.is_cpu()) return std::make_shared<HostActivations>();
  return nullptr;
}

DiskActivations::DiskActivations(const std::filesystem::path& folder, bool use_uring)
    : file_(std::make_unique<ScratchFile>(
          folder, 2 * kIoAlignment,
          ScratchUse{.key = "offload.folder", .content = "this rank's activations"})),
      io_(make_async_io(file_->io(), use_uring)) {
  file_bytes_ = 2 * kIoAlignment;
  free_extents_.emplace(file_bytes_, 0);
}

DiskActivations::~DiskActivations() {
  io_.reset();  // waits, because the kernel still uses the buffers
  unmap();
}

void DiskActivations::unmap() noexcept {
  for (Buffer& buffer : buffers_) {
    if (buffer.data != nullptr) ::munmap(std::exchange(buffer.data, nullptr), bytes_per_buffer_);
  }
}

// Waits for all requests, as the buffers move.
void DiskActivations::resize_buffers(size_t num_bytes) {
  for (Buffer& buffer : buffers_) {
    finish(buffer);
    let_go(buffer);
  }
  unmap();
  bytes_per_buffer_ = num_bytes;
  for (Buffer& buffer : buffers_) {
    // Page-aligned, as direct requests require, and freed as a whole.
    void* data =
        ::mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throw Error(concat("no memory for the ", kNumBuffers, " buffers of offload.activations, ",
                         num_bytes, " bytes each"));
    }
    buffer.data = static_cast<std::byte*>(data);
  }
  charge_ = {};
  charge_ = MemoryCharge(static_cast<int64_t>(kNumBuffers * num_bytes),
                         {memory_owner().ledger, MemoryKind::kActivations});
}

void DiskActivations::finish(Buffer& buffer) {
  if (buffer.ticket) io_->wait(*std::exchange(buffer.ticket, std::nullopt));
}

// The tensor, if it is still kept, is then in the file alone.
void DiskActivations::let_go(Buffer& buffer) {
  if (!buffer.number) return;
  const auto kept = kept_.find(*std::exchange(buffer.number, std::nullopt));
  if (kept != kept_.end()) kept->second.buffer = nullptr;
}

DiskActivations::Extent DiskActivations::take_extent(size_t num_bytes) {
  const auto smallest = free_extents_.lower_bound(num_bytes);
  if (smallest != free_extents_.end() && smallest->first <= 2 * num_bytes) {
    const Extent extent{smallest->second, smallest->first};
    free_extents_.erase(smallest);
    return extent;
  }
  file_->grow(num_bytes);
  return {std::exchange(file_bytes_, file_bytes_ + num_bytes), num_bytes};
}

// One without a tensor, or else the one that was used first.
DiskActivations::Buffer& DiskActivations::first_used() {
  return *std::ranges::min_element(buffers_, {}, [](const Buffer& buffer) {
    return std::pair(buffer.number.has_value(), buffer.last_use);
  });
}

// Waits for the transfer of the tensor that leaves it.
DiskActivations::Buffer& DiskActivations::free_buffer() {
  Buffer& buffer = first_used();
  finish(buffer);
  let_go(buffer);
  buffer.last_use = ++num_uses_;
  return buffer;
}

int64_t DiskActivations::put(const at::Tensor& input) {
  const std::lock_guard lock(mutex_);
  Kept kept{.options = input.options()};
  if (input.nbytes() < kFewestBytes) {
    kept.in_memory = input.clone();
  } else {
    kept.format = input.suggest_memory_format();  // channels last stays so, and its kernels
    const at::Tensor host = input.contiguous(kept.format).cpu();
    kept.shape = host.sizes().vec();
    kept.num_bytes = host.nbytes();
    const size_t padded = round_up(kept.num_bytes, kIoAlignment);
    if (padded > bytes_per_buffer_) resize_buffers(padded);
    Buffer& buffer = free_buffer();
    kept.extent = take_extent(padded);
    copy_bytes(buffer.data, static_cast<const std::byte*>(host.const_data_ptr()), kept.num_bytes);
    buffer.number = next_number_;
    buffer.ticket = io_->start({IoKind::kWrite, kept.extent.offset, buffer.data, padded});
    kept.buffer = &buffer;
  }
  kept_.emplace(next_number_, std::move(kept));
  return next_number_++;
}

void DiskActivations::start_read(Kept& kept, int64_t number, Buffer& buffer) {
  buffer.number = number;
  buffer.ticket = io_->start(
      {IoKind::kRead, kept.extent.offset, buffer.data, round_up(kept.num_bytes, kIoAlignment)});
  kept.buffer = &buffer;
}

// Reads what was put before `number`, as far as buffers are free.
void DiskActivations::read_ahead(int64_t number) {
  for (auto kept = kept_.lower_bound(number); kept != kept_.begin();) {
    --kept;
    if (kept->second.in_memory.defined() || kept->second.buffer != nullptr) continue;
    if (first_used().number) return;  // all have tensors that are still wanted
    start_read(kept->second, kept->first, free_buffer());
  }
}

at::Tensor DiskActivations::take(int64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(number);
  TRIREME_ASSERT(found != kept_.end(), "input ", number, " is not kept");
  Kept& kept = found->second;
  if (kept.in_memory.defined()) {
    at::Tensor result = std::move(kept.in_memory);
    kept_.erase(found);
    return result;
  }
  if (kept.buffer == nullptr) start_read(kept, number, free_buffer());
  Buffer& buffer = *kept.buffer;
  finish(buffer);
  at::Tensor host =
      at::empty(kept.shape, kept.options.device(at::kCPU).requires_grad(false), kept.format);
  copy_bytes(static_cast<std::byte*>(host.mutable_data_ptr()), buffer.data, kept.num_bytes);
  const at::Device device = kept.options.device();
  forget(found);
  read_ahead(number);
  return host.to(device);
}

void DiskActivations::forget(std::map<int64_t, Kept>::iterator kept) {
  if (kept->second.buffer != nullptr) {
    finish(*kept->second.buffer);  // its extent may be written again
    kept->second.buffer->number.reset();
  }
  if (kept->second.extent.num_bytes > 0) {
    free_extents_.emplace(kept->second.extent.num_bytes, kept->second.extent.offset);
  }
  kept_.erase(kept);
}

void DiskActivations::drop(int64_t number) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(number);
  if (found == kept_.end()) return;
  try {
    forget(found);
  } catch (const std::exception&) {
    kept_.erase(number);  // the failure that drops it is already being reported
  }
}

}  // namespace trireme::train
