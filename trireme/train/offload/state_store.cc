#include "trireme/train/offload/state_store.h"

#include <utility>

#include <c10/core/ScalarType.h>

#include "trireme/train/offload/disk_store.h"
#include "trireme/train/offload/memory_store.h"

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
  const at::Device home = options.place == OffloadPlace::kHost ? at::Device(at::kCPU) : plan.device;
  return std::make_unique<MemoryStore>(std::move(plan), home);
}

}  // namespace trireme::train
