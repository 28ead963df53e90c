// Root-mean-square norm: y = x / sqrt(mean(x^2) + epsilon) * weight over the last dimension.
// Source: Zhang & Sennrich 2019, arXiv:1910.07467, section 3
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/plan.h"

namespace trireme::model {

// Shapes: x [..., D], weight_D [D] -> y [..., D]
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double epsilon);

// For a residual branch: {x itself, rms_norm(x)}. Adding to the first and feeding the branch with
// the second saves one pass over x's gradient, which the norm's backward then sums on its way.
// Shapes: x [..., D], weight_D [D] -> x [..., D], y [..., D]
std::pair<at::Tensor, at::Tensor> rms_norm_branch(const at::Tensor& x, const at::Tensor& weight_D,
                                                  double epsilon);

// Under sequence parallelism each rank norms its own rows and the weight's gradient is summed.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  at::Tensor forward(const at::Tensor& x) { return branch(x).second; }
  std::pair<at::Tensor, at::Tensor> branch(const at::Tensor& x);

  at::Tensor weight_D;

 private:
  double epsilon_;
  parallel::TensorAxis axis_;
};

}  // namespace trireme::model
