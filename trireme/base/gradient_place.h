// Lets an operator write a parameter's gradient to where it is gathered, so that nobody copies it
// there.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function_hook.h>

namespace trireme {

// A parameter's hook that gathers its gradients. Autograd calls it after it has accumulated one.
class GradientTaker : public torch::autograd::PostAccumulateGradHook {
 public:
  // Memory for the next gradient, which holds nothing of use: a tensor like the parameter, with no
  // other reference to it, or an undefined one if the gradient must have memory of its own. Given
  // out once in a backward: of two gradients autograd makes a sum, and that needs both.
  virtual at::Tensor place() = 0;
};

// The parameter's; null: it has none.
GradientTaker* taker_of(const at::Tensor& parameter);
// Where the operator that computes the gradient of `parameter` may write it before it hands it to
// autograd: the place of the parameter's taker, or an undefined tensor. Only within a backward.
at::Tensor gradient_place(const at::Tensor& parameter);
// The same, or else new memory like the parameter.
at::Tensor empty_gradient(const at::Tensor& parameter);

}  // namespace trireme
