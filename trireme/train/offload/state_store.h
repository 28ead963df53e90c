// Keeps an optimizer's states: in memory, on the host of a GPU, or on a disk. An optimizer works on
// them chunk by chunk and does not know which. MemoryStore is the plain one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/offload/offload_config.h"

namespace trireme::train {

// A tensor, initially zero.
struct StateTensor {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;  // where it is worked on

  int64_t numel() const;
  int64_t num_bytes() const;
};

// `count` elements of a tensor from element `first` on.
struct StatePiece {
  size_t tensor = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// The tensors that a store holds, and the chunks in which they are visited. A piece is in one
// chunk.
struct StatePlan {
  std::vector<StateTensor> tensors;
  std::vector<std::vector<StatePiece>> chunks;
};

// Not thread safe.
class StateStore {
 public:
  // Gets the chunk's pieces as tensors on their devices, and changes them in place. A whole
  // tensor has its own shape, a part is flat. They are valid until it returns.
  using Visit = std::function<void(size_t chunk, std::span<const at::Tensor> pieces)>;

  virtual ~StateStore() = default;

  // Calls `visit` for each of `chunks`, in that order. No chunk may appear twice.
  // Throws: Error when the disk fails; the states are then lost
  virtual void visit(std::span<const size_t> chunks, const Visit& visit) = 0;

  // Sets up `entry` so that a checkpoint reads and loads tensor number `tensor` through it. The
  // store must outlive its use.
  virtual void describe(size_t tensor, checkpoint::Entry& entry) = 0;
};

struct OffloadOptions {
  OffloadPlace place = OffloadPlace::kNone;
  // kDisk:
  std::filesystem::path folder{};
  int64_t buffer_bytes = 64 << 20;  // limit on a chunk, if tensors can be cut
  bool use_uring = true;            // false is for tests: threads even if io_uring works
};

// Throws: ConfigError when a folder cannot be written or has too little room
std::unique_ptr<StateStore> make_state_store(const OffloadOptions& options, StatePlan plan);

// States in memory, on the device that works on them or on the host. Between a GPU and the host,
// each chunk is copied there and back. On one device, a visit works on the states directly.

class MemoryStore : public StateStore {
 public:
  // home: of all tensors; nothing: each is where it is worked on
  explicit MemoryStore(StatePlan plan, std::optional<at::Device> home = {});

  void visit(std::span<const size_t> chunks, const Visit& visit) override;
  void describe(size_t tensor, checkpoint::Entry& entry) override;

 private:
  StatePlan plan_;
  std::vector<at::Tensor> tensors_;  // one per tensor of the plan, at home
};

}  // namespace trireme::train
