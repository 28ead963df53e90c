// Checks of a call's tensors, made before anything is sent, and the contiguous memory behind them.
// Never communicates, except for members_of_split().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm::inline internal {

// Throws: ConfigError unless `tensor` is a dense CPU tensor
void check_cpu_tensor(const char* operation, const at::Tensor& tensor);
// Throws: ConfigError unless `root` is a rank of `group`
void check_rank(const char* operation, const Communicator& group, int root);
// Throws: ConfigError unless `peer` is another rank of `group`
void check_peer(const char* operation, const Communicator& group, int peer);
// The same, but accepts kAnySource.
void check_source(const char* operation, const Communicator& group, int peer);
// Throws: ConfigError unless there is one tensor for each rank of `group`, all on the CPU
void check_one_a_rank(const char* operation, const Communicator& group,
                      const std::vector<at::Tensor>& tensors);
// Throws: ConfigError unless all have `like`'s dtype
void check_dtypes(const char* operation, const std::vector<at::Tensor>& tensors,
                  const at::Tensor& like);

// blocks: one per rank. own: this rank's input or output.
// Throws: ConfigError unless all blocks have the dtype of `own`, and this rank's block has its size
//         in bytes
void check_own_block(const char* operation, const Communicator& group,
                     const std::vector<at::Tensor>& blocks, const at::Tensor& own);

// For calls whose ranks must agree on each block's size, not just on the sum. Never 0.
uint64_t hash_of_sizes(const std::vector<at::Tensor>& tensors);
int64_t total_elements(const std::vector<at::Tensor>& tensors);

// Contiguous memory for a tensor that an operation reads or writes: the tensor itself, or a copy.
// commit() writes the copy back.
class FlatTensor {
 public:
  explicit FlatTensor(at::Tensor tensor)
      : tensor_(std::move(tensor)), contiguous_(tensor_.contiguous()) {}
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(contiguous_.data_ptr()), contiguous_.nbytes()};
  }
  std::span<const std::byte> const_bytes() const {
    return {static_cast<const std::byte*>(contiguous_.const_data_ptr()), contiguous_.nbytes()};
  }
  const at::Tensor& contiguous() const { return contiguous_; }         // in the tensor's shape
  at::Tensor flat() const { return contiguous_.detach().view({-1}); }  // [numel], a view
  void commit() const;

 private:
  at::Tensor tensor_;
  at::Tensor contiguous_;
};

// One entry per rank. A few ranks need no allocation.
template <typename T>
using Few = c10::SmallVector<T, 8>;

class FlatTensors {
 public:
  explicit FlatTensors(const std::vector<at::Tensor>& tensors) {
    for (const at::Tensor& tensor : tensors) items_.emplace_back(tensor);
  }
  Few<std::span<std::byte>> bytes() const;
  Few<std::span<const std::byte>> const_bytes() const;
  std::vector<at::Tensor> flat() const;
  at::Tensor flat(size_t rank) const { return items_[rank].flat(); }
  void commit() const;

 private:
  Few<FlatTensor> items_;
};

// Contiguous versions, each [numel], of tensors that an operation only reads.
at::Tensor flat_of(const at::Tensor& tensor);
std::vector<at::Tensor> flat_of(const std::vector<at::Tensor>& tensors);

// The ranks of `group` that called split() with this rank's `color`, ordered by (key, rank). For a
// negative color, all ranks with that color. Every rank sends its color and key to all; there is no
// leader.
// Comm:       16 bytes per rank, on `device`
// Collective: every rank
std::vector<int> members_of_split(Communicator& group, int color, int key,
                                  c10::DeviceType device = c10::DeviceType::CPU);

// Views of flat [n] as `count` blocks. Their lengths differ by at most one; longer ones come first.
std::vector<at::Tensor> view_even_blocks(const at::Tensor& flat, int count);

}  // namespace trireme::comm::inline internal
