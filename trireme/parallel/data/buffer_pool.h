// Memory that is needed again and again in similar sizes: gradients on their way, parameters while
// they are gathered. Fresh memory would cost a page fault every 4 KiB; memory kept for ever would
// be a second copy of the model. So what is out and what is idle together never exceed one and a
// half times what was out at one time: room for one unit that is larger than the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// Thread safety: all methods, and tensors may die on any thread.
class BufferPool {
 public:
  using Allocate = std::function<at::Tensor(int64_t elements, const at::TensorOptions& options)>;
  explicit BufferPool(Allocate allocate);

  // A tensor [elements] with any content, in memory of at most twice its size. The memory comes
  // back when the last view of it dies; that may be after the pool.
  at::Tensor take(int64_t elements, const at::TensorOptions& options);

  // The largest sum of bytes that were out at one time; the pool holds at most 1.5 times that.
  int64_t peak_bytes() const;
  // Out and idle.
  int64_t held_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme::parallel
