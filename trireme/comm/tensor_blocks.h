// A call's tensors: their sizes, and the contiguous memory behind them. Never communicates, except
// for members_of_split().
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/MaybeOwned.h>
#include <c10/util/SmallVector.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// For calls whose ranks must agree on each block's size, not just on the sum. Never 0.
uint64_t hash_of_sizes(const std::vector<at::Tensor>& tensors);
int64_t total_elements(const std::vector<at::Tensor>& tensors);

// Contiguous memory for a tensor that an operation reads or writes: the tensor itself, or a copy.
// commit() writes the copy back. An undefined tensor has none.
class FlatTensor {
 public:
  // Borrows: somebody else keeps the tensor meanwhile. Counting references is a good part of the
  // time of a small all_reduce.
  explicit FlatTensor(const at::Tensor& tensor)
      : FlatTensor(c10::MaybeOwned<at::Tensor>::borrowed(tensor)) {}
  explicit FlatTensor(at::Tensor&& tensor)
      : FlatTensor(c10::MaybeOwned<at::Tensor>::owned(std::move(tensor))) {}
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(contiguous().data_ptr()), contiguous().nbytes()};
  }
  std::span<const std::byte> const_bytes() const {
    return {static_cast<const std::byte*>(contiguous().const_data_ptr()), contiguous().nbytes()};
  }
  bool is_copy() const { return copy_.defined(); }
  // In the tensor's shape.
  const at::Tensor& contiguous() const { return is_copy() ? copy_ : *tensor_; }
  at::Tensor flat() const {  // [numel], a view
    return tensor_->defined() ? contiguous().detach().view({-1}) : *tensor_;
  }
  void commit() const;

 private:
  explicit FlatTensor(c10::MaybeOwned<at::Tensor> tensor) : tensor_(std::move(tensor)) {
    if (tensor_->defined() && !tensor_->is_contiguous()) copy_ = tensor_->contiguous();
  }

  c10::MaybeOwned<at::Tensor> tensor_;
  at::Tensor copy_;  // undefined when the tensor is contiguous
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

// Contiguous memory for all tensors of a collective, which must live as long.
struct FlatCollective {
  explicit FlatCollective(const Collective& call)
      : data(call.data), outputs(call.outputs), inputs(call.inputs) {}
  // Writes back what `rank` finds new when `call`, the same, is done.
  void commit(const Collective& call, int rank) const;

  FlatTensor data;
  FlatTensors outputs;
  FlatTensors inputs;
};

// One flat tensor per rank, this one included; undefined: nothing.
struct Moves {
  std::vector<at::Tensor> to;
  std::vector<at::Tensor> from;
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

}  // namespace trireme::comm
