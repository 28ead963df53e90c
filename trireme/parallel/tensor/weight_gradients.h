// Lets a layer's backward postpone the gradients of its weights. Zero-bubble pipelines fill their
// bubbles with them.
// Source: Qi et al. 2023, arXiv:2401.10241, section 2
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

class WeightGradients {
 public:
  virtual ~WeightGradients() = default;
  // Takes over `gradient` and returns true, or returns false: compute it now. A `gradient` that was
  // taken over is called once, later, by the thread that runs backward. Its result is added to the
  // gradient of `leaf` as autograd would have done.
  virtual bool defer(const at::Tensor& leaf, std::function<at::Tensor()> gradient) = 0;
};

}  // namespace trireme::parallel
