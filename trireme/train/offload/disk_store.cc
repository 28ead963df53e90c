#include "trireme/train/offload/disk_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <ATen/ATen.h>
#include <sys/mman.h>

#include "trireme/base/error.h"
#include "trireme/base/numbers.h"

namespace trireme::train {
namespace {

// A tensor of a store, as a checkpoint reads and writes it.
class StoredTensor : public checkpoint::OffloadedTensor {
 public:
  StoredTensor(DiskStore& store, size_t tensor) : store_(store), tensor_(tensor) {}
  at::Tensor read() const override { return store_.read(tensor_); }
  void write(const at::Tensor& values) override { store_.write(tensor_, values); }

 private:
  DiskStore& store_;
  size_t tensor_;
};

}  // namespace

DiskStore::DiskStore(const OffloadOptions& options, StatePlan plan) : plan_(std::move(plan)) {
  place_pieces();
  file_ = std::make_unique<ScratchFile>(options.folder, file_bytes_);
  map_buffers();
  io_ = make_async_io(file_->io(), options.use_uring);
}

DiskStore::~DiskStore() {
  io_.reset();  // waits, because the kernel still uses the buffers
  for (const Buffer& buffer : buffers_) {
    if (buffer.data != nullptr) ::munmap(buffer.data, bytes_per_buffer_);
  }
}

void DiskStore::place_pieces() {
  places_of_.resize(plan_.tensors.size());
  uint64_t offset = 0;
  for (size_t chunk = 0; chunk < plan_.chunks.size(); ++chunk) {
    Extent& extent = extents_.emplace_back(Extent{.offset = offset});
    for (const StatePiece& piece : plan_.chunks[chunk]) {
      const StateTensor& tensor = plan_.tensors[piece.tensor];
      const Place place{chunk, extent.num_bytes, piece};
      extent.places.push_back(place);
      places_of_[piece.tensor].push_back(place);
      extent.num_bytes += round_up(piece.count * c10::elementSize(tensor.dtype), kIoAlignment);
    }
    offset += extent.num_bytes;
    bytes_per_buffer_ = std::max<size_t>(bytes_per_buffer_, extent.num_bytes);
  }
  file_bytes_ = static_cast<int64_t>(offset);
}

void DiskStore::map_buffers() {
  if (bytes_per_buffer_ == 0) return;
  for (Buffer& buffer : buffers_) {
    // Page-aligned, as direct requests require, and freed as a whole.
    void* data = ::mmap(nullptr, bytes_per_buffer_, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      for (Buffer& mapped : buffers_) {
        if (mapped.data != nullptr)
          ::munmap(std::exchange(mapped.data, nullptr), bytes_per_buffer_);
      }
      throw Error(concat("no memory for the ", kNumBuffers, " buffers of offload.optimizer, ",
                         bytes_per_buffer_, " bytes each; lower offload.buffer_bytes"));
    }
    buffer.data = static_cast<std::byte*>(data);
  }
  charge_ = MemoryCharge(buffer_bytes(), {memory_owner().ledger, MemoryKind::kStates});
}

int64_t DiskStore::buffer_bytes() const {
  return static_cast<int64_t>(kNumBuffers * bytes_per_buffer_);
}

void DiskStore::finish(Buffer& buffer) {
  if (!buffer.ticket) return;
  io_->wait(*std::exchange(buffer.ticket, std::nullopt));
}

void DiskStore::flush() {
  for (Buffer& buffer : buffers_) finish(buffer);
}

void DiskStore::finish_all() noexcept {
  for (Buffer& buffer : buffers_) {
    try {
      finish(buffer);
    } catch (const std::exception&) {
      // The first failure is already being thrown.
    }
  }
}

DiskStore::Buffer& DiskStore::start_read(size_t chunk) {
  // The last visit may still be writing this chunk from another buffer.
  for (Buffer& other : buffers_) {
    if (other.ticket && other.chunk == chunk) finish(other);
  }
  Buffer& buffer = buffers_[next_buffer_++ % kNumBuffers];
  finish(buffer);
  buffer.chunk = chunk;
  const Extent& extent = extents_[chunk];
  if (extent.num_bytes > 0)
    buffer.ticket = io_->start({IoKind::kRead, extent.offset, buffer.data, extent.num_bytes});
  return buffer;
}

void DiskStore::start_write(Buffer& buffer, size_t chunk) {
  const Extent& extent = extents_[chunk];
  if (extent.num_bytes > 0)
    buffer.ticket = io_->start({IoKind::kWrite, extent.offset, buffer.data, extent.num_bytes});
}

at::Tensor DiskStore::view(const Buffer& buffer, const Place& place) const {
  const StateTensor& tensor = plan_.tensors[place.piece.tensor];
  const bool is_whole = place.piece.count == tensor.numel();
  return at::from_blob(buffer.data + place.in_chunk,
                       is_whole ? tensor.shape : std::vector<int64_t>{place.piece.count},
                       at::TensorOptions().dtype(tensor.dtype));
}

void DiskStore::visit(std::span<const size_t> chunks, const Visit& visit) {
  try {
    Buffer* ahead = chunks.empty() ? nullptr : &start_read(chunks[0]);
    for (size_t i = 0; i < chunks.size(); ++i) {
      Buffer& buffer = *ahead;
      if (i + 1 < chunks.size()) ahead = &start_read(chunks[i + 1]);
      finish(buffer);
      std::vector<at::Tensor> stored, pieces;
      for (const Place& place : extents_[chunks[i]].places) {
        stored.push_back(view(buffer, place));
        // The same tensor if it is already there.
        pieces.push_back(stored.back().to(plan_.tensors[place.piece.tensor].device));
      }
      visit(chunks[i], pieces);
      for (size_t k = 0; k < pieces.size(); ++k) {
        if (!pieces[k].is_same(stored[k])) stored[k].copy_(pieces[k]);
      }
      start_write(buffer, chunks[i]);
    }
  } catch (...) {
    finish_all();
    throw;
  }
}

void DiskStore::transfer_now(IoKind kind, const Place& place) {
  const StateTensor& tensor = plan_.tensors[place.piece.tensor];
  Buffer& buffer = buffers_[0];
  buffer.ticket =
      io_->start({kind, extents_[place.chunk].offset + place.in_chunk, buffer.data,
                  round_up(place.piece.count * c10::elementSize(tensor.dtype), kIoAlignment)});
  finish(buffer);
}

at::Tensor DiskStore::read(size_t tensor) {
  flush();
  const StateTensor& state = plan_.tensors[tensor];
  at::Tensor values = at::zeros(state.shape, at::TensorOptions().dtype(state.dtype));
  const size_t item_bytes = c10::elementSize(state.dtype);
  auto* begin = static_cast<std::byte*>(values.mutable_data_ptr());
  for (const Place& place : places_of_[tensor]) {
    transfer_now(IoKind::kRead, place);
    std::memcpy(begin + place.piece.first * item_bytes, buffers_[0].data,
                place.piece.count * item_bytes);
  }
  return values;
}

void DiskStore::write(size_t tensor, const at::Tensor& values) {
  flush();
  const StateTensor& state = plan_.tensors[tensor];
  TRIREME_ASSERT(values.is_contiguous() && values.device().is_cpu() &&
                     values.scalar_type() == state.dtype && values.numel() == state.numel(),
                 "values of state ", tensor);
  const size_t item_bytes = c10::elementSize(state.dtype);
  const auto* begin = static_cast<const std::byte*>(values.const_data_ptr());
  for (const Place& place : places_of_[tensor]) {
    std::memcpy(buffers_[0].data, begin + place.piece.first * item_bytes,
                place.piece.count * item_bytes);
    transfer_now(IoKind::kWrite, place);
  }
}

void DiskStore::describe(size_t tensor, checkpoint::Entry& entry) {
  const StateTensor& state = plan_.tensors[tensor];
  entry.local = at::empty(state.shape, at::TensorOptions().dtype(state.dtype).device(at::kMeta));
  entry.offloaded = std::make_shared<StoredTensor>(*this, tensor);
}

}  // namespace trireme::train
