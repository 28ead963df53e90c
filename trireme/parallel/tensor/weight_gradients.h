// Where a layer's backward may leave the gradient of its weights to be computed later: what fills
// the bubbles of a zero-bubble pipeline.
// Source: Qi et al. 2023, arXiv:2401.10241, section 2
#pragma once

#include <functional>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

class WeightGradients {
 public:
  virtual ~WeightGradients() = default;
  // Takes `gradient` over and returns true: it is called once, later, by the thread that runs
  // backward, and its result added to the gradient of `leaf` as autograd would have. Or returns
  // false: it is to be computed now.
  virtual bool defer(const at::Tensor& leaf, std::function<at::Tensor()> gradient) = 0;
};

}  // namespace trireme::parallel
