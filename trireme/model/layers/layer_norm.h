// Layer norm with weight and bias over the last dimension.
// Source: Ba et al. 2016, arXiv:1607.06450, section 3
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/plan.h"

namespace trireme::model::inline internal {

// Under sequence parallelism, each rank normalises its own rows, and the gradients of weight and
// bias are summed over the ranks.
class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Shapes: x [..., D] -> y [..., D]
  at::Tensor forward(const at::Tensor& x);

  at::Tensor weight_D;
  at::Tensor bias_D;

 private:
  double epsilon_;
  parallel::TensorAxis axis_;
};

}  // namespace trireme::model::inline internal
