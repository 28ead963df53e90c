#include "trireme/train/offload/state_store.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/train/offload/disk_store.h"

namespace trireme::train {

int64_t StateTensor::numel() const {
  int64_t count = 1;
  for (const int64_t length : shape) count *= length;
  return count;
}

int64_t StateTensor::num_bytes() const {
  return numel() * static_cast<int64_t>(c10::elementSize(dtype));
}

std::unique_ptr<StateStore> make_state_store(const OffloadOptions& options, StatePlan plan) {
  if (options.place == OffloadPlace::kDisk) {
    return std::make_unique<DiskStore>(options, std::move(plan));
  }
  std::optional<at::Device> home;
  if (options.place == OffloadPlace::kHost) home = at::kCPU;
  return std::make_unique<MemoryStore>(std::move(plan), home);
}

MemoryStore::MemoryStore(StatePlan plan, std::optional<at::Device> home) : plan_(std::move(plan)) {
  const MemoryScope scope(MemoryKind::kStates);
  for (const StateTensor& tensor : plan_.tensors) {
    const at::Device device = home.value_or(tensor.device);
    // A GPU copies pinned memory at full speed.
    const bool pinned = device.is_cpu() && !tensor.device.is_cpu();
    tensors_.push_back(
        at::zeros(tensor.shape,
                  at::TensorOptions().dtype(tensor.dtype).device(device).pinned_memory(pinned)));
  }
}

void MemoryStore::visit(std::span<const size_t> chunks, const Visit& visit) {
  for (const size_t chunk : chunks) {
    std::vector<at::Tensor> stored, pieces;
    for (const StatePiece& piece : plan_.chunks[chunk]) {
      const at::Tensor& tensor = tensors_[piece.tensor];
      stored.push_back(piece.count == tensor.numel()
                           ? tensor
                           : tensor.view(-1).narrow(0, piece.first, piece.count));
      // The same tensor if it is already there.
      pieces.push_back(stored.back().to(plan_.tensors[piece.tensor].device));
    }
    visit(chunk, pieces);
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (!pieces[i].is_same(stored[i])) stored[i].copy_(pieces[i]);
    }
  }
}

void MemoryStore::describe(size_t tensor, checkpoint::Entry& entry) {
  entry.local = tensors_[tensor];
}

}  // namespace trireme::train
