#include "trireme/base/gradient_place.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

namespace trireme {

GradientTaker* taker_of(const at::Tensor& parameter) {
  // Asking for hooks of a tensor without autograd state would make that state.
  if (torch::autograd::impl::get_autograd_meta(parameter) == nullptr) return nullptr;
  return dynamic_cast<GradientTaker*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
}

at::Tensor gradient_place(const at::Tensor& parameter) {
  GradientTaker* const taker = taker_of(parameter);
  return taker == nullptr ? at::Tensor() : taker->place();
}

at::Tensor empty_gradient(const at::Tensor& parameter) {
  at::Tensor place = gradient_place(parameter);
  return place.defined() ? place : at::empty(parameter.sizes(), parameter.options());
}

}  // namespace trireme
