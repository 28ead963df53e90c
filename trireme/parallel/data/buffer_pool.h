// Reuses memory that is needed repeatedly in similar sizes, for gradients in transit and gathered
// parameters. Fresh memory would cost a page fault every 4 KiB. Memory kept forever would be a
// second copy of the model. Used and idle memory together therefore never exceed 1.5 times the most
// that was used at one time, which leaves room for one unit larger than the others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// Thread safety: any thread may call any method, and tensors may be freed on any thread.
class BufferPool {
 public:
  using Allocate = std::function<at::Tensor(int64_t elements, const at::TensorOptions& options)>;
  explicit BufferPool(Allocate allocate);

  // A tensor [elements] with undefined content, in memory of at most twice its size. The memory is
  // returned when its last view is freed, which may be after the pool is destroyed.
  at::Tensor take(int64_t elements, const at::TensorOptions& options);

  // The most bytes that were used at one time. The pool holds at most 1.5 times that.
  int64_t peak_bytes() const;
  // Used and idle bytes.
  int64_t held_bytes() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme::parallel
