// Value and gradients of a function of tensors, to compare two ways of computing it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/tensors.h"

namespace trireme::harness {

using Tensors = std::vector<at::Tensor>;

// Returns {f(inputs), d(f . weight)/d(input) for each input}. The inputs are copied first, and each
// is multiplied by one, so f may work on it in place.
inline Tensors value_and_gradients(const std::function<at::Tensor(const Tensors&)>& f,
                                   const Tensors& inputs) {
  Tensors leaves;
  Tensors arguments;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.clone().requires_grad_());
    arguments.push_back(leaves.back() * 1);
  }
  const at::Tensor value = f(arguments);
  // Uneven weights, none of them zero, so a gradient that mixes up elements cannot pass.
  const at::Tensor weight =
      at::arange(value.numel(), at::kDouble).mul_(0.7).add_(0.9).sin_().to(value.scalar_type());
  Tensors result = {value.detach().clone()};
  const at::Tensor loss = (value * weight.view_as(value)).sum();
  for (const at::Tensor& grad : torch::autograd::grad({loss}, leaves)) result.push_back(grad);
  return result;
}

inline void assert_same_function(const std::function<at::Tensor(const Tensors&)>& actual,
                                 const std::function<at::Tensor(const Tensors&)>& expected,
                                 const Tensors& inputs, double relative) {
  const Tensors a = value_and_gradients(actual, inputs);
  const Tensors e = value_and_gradients(expected, inputs);
  for (size_t i = 0; i < e.size(); ++i) {
    assert_close(a[i], e[i], relative, relative,
                 i == 0 ? "value" : "gradient " + std::to_string(i));
  }
}

// Deterministic values in (-scale, scale).
inline at::Tensor values(at::IntArrayRef shape, double frequency, double scale = 1,
                         at::ScalarType dtype = at::kDouble) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return at::arange(count, at::kDouble).mul_(frequency).sin_().mul_(scale).view(shape).to(dtype);
}

}  // namespace trireme::harness
