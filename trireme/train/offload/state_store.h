// Where an optimizer's states live: in memory, on the host beside a GPU, or on a disk. An optimizer
// works on them chunk by chunk and does not know which.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/checkpoint.h"
#include "trireme/train/offload/offload_config.h"

namespace trireme::train {

// One tensor; zero at first.
struct StateTensor {
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;

  int64_t numel() const;
  int64_t num_bytes() const;
};

// `count` elements of a tensor from element `first` on.
struct StatePiece {
  size_t tensor = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// What a store holds, and in which portions it is asked for. A piece is in one chunk.
struct StatePlan {
  std::vector<StateTensor> tensors;
  std::vector<std::vector<StatePiece>> chunks;
  at::Device device = at::kCPU;  // where chunks are worked on
};

// Not thread-safe.
class StateStore {
 public:
  // The chunk's pieces as tensors on the plan's device, to be changed in place: a whole tensor in
  // its own shape, a part of one flat. They are valid until it returns.
  using Visit = std::function<void(size_t chunk, std::span<const at::Tensor> pieces)>;

  virtual ~StateStore() = default;

  // Calls `visit` for each of `chunks` (no chunk twice) in that order.
  // Throws: Error when the disk fails; the states are lost then
  virtual void visit(std::span<const size_t> chunks, const Visit& visit) = 0;

  // Fills in what a checkpoint reads tensor number `tensor` from and loads it into. Used before
  // the store goes.
  virtual void describe(size_t tensor, checkpoint::Entry& entry) = 0;
};

struct OffloadOptions {
  OffloadPlace place = OffloadPlace::kNone;
  // kDisk:
  std::filesystem::path folder{};
  int64_t buffer_bytes = 64 << 20;  // the most that a chunk may have, where tensors can be cut
  bool use_uring = true;            // false is for tests: threads even where io_uring works
};

// Throws: ConfigError when a folder cannot be written or has too little room
std::unique_ptr<StateStore> make_state_store(const OffloadOptions& options, StatePlan plan);

}  // namespace trireme::train
