// What transports check of a call's tensors before anything is sent, and the contiguous memory
// behind them. Never communicates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// Throws: ConfigError unless `tensor` is a dense CPU tensor
void check_cpu_tensor(const char* operation, const at::Tensor& tensor);
// Throws: ConfigError unless `root` is a rank of `group`
void check_rank(const char* operation, const Communicator& group, int root);
// Throws: ConfigError unless `peer` is another rank of `group`
void check_peer(const char* operation, const Communicator& group, int peer);
// The same, but for kAnySource, which is fine.
void check_source(const char* operation, const Communicator& group, int peer);
// Throws: ConfigError unless there is one tensor for each rank of `group`, all on the CPU
void check_one_a_rank(const char* operation, const Communicator& group,
                      const std::vector<at::Tensor>& tensors);
// Throws: ConfigError unless all have `like`'s dtype
void check_dtypes(const char* operation, const std::vector<at::Tensor>& tensors,
                  const at::Tensor& like);

// blocks: one per rank. own: what this rank gives or takes.
// Throws: ConfigError unless all blocks have the dtype of `own`, and this rank's block its bytes
void check_own_block(const char* operation, const Communicator& group,
                     const std::vector<at::Tensor>& blocks, const at::Tensor& own);

// For calls whose ranks must agree on each block's size, not only on the sum; never 0.
uint64_t hash_of_sizes(const std::vector<at::Tensor>& tensors);
int64_t total_elements(const std::vector<at::Tensor>& tensors);

// Contiguous memory for a tensor that an operation reads or writes: the tensor itself, or a copy
// that commit() puts back.
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

// One entry per rank; few ranks need no allocation.
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
  void commit() const;

 private:
  Few<FlatTensor> items_;
};

// Contiguous versions, [numel] each, of tensors that an operation reads.
at::Tensor flat_of(const at::Tensor& tensor);
std::vector<at::Tensor> flat_of(const std::vector<at::Tensor>& tensors);

// The ranks of `group` that gave split() this rank's `color`, by (key, rank); for a negative color
// those that gave it too. Every rank's color and key go to all, so no rank leads.
// Collective: all ranks; 16 bytes each, on `device`
std::vector<int> members_of_split(Communicator& group, int color, int key,
                                  c10::DeviceType device = c10::DeviceType::CPU);

// flat [n] cut into `count` blocks whose lengths differ by one at most, longer ones first; views.
std::vector<at::Tensor> view_even_blocks(const at::Tensor& flat, int count);

}  // namespace trireme::comm
