// Memory that is needed again and again in the same sizes: gradients on their way, parameters while
// they are gathered. Fresh memory would cost a page fault every 4 KiB.
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

  // A tensor [elements] with any content. Its memory comes back when the last view of it dies; that
  // may be after the pool.
  at::Tensor take(int64_t elements, const at::TensorOptions& options);

  // The largest sum of bytes that were out at one time.
  int64_t peak_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme::parallel
