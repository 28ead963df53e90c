// Norms over the last dimension. Layer norm, with weight and bias, and root-mean-square norm: y = x
// / sqrt(mean(x^2) + epsilon) * (offset + weight). With an offset of 1, as in Gemma, weights begin
// at 0 and are precise around it in any dtype.
// Sources: Ba et al. 2016, arXiv:1607.06450, section 3; Zhang & Sennrich 2019, arXiv:1910.07467,
//          section 3
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/plan.h"

namespace trireme::model {

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

// Shapes: x [..., D], weight_D [D] -> y [..., D]
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double epsilon,
                    double offset = 0);

// For a residual branch: returns {x, rms_norm(x)}. The branch reads the second and its output is
// added to the first. The norm's backward then adds both gradients of x, which saves a pass over
// them.
// Shapes: x [..., D], weight_D [D] -> x [..., D], y [..., D]
std::pair<at::Tensor, at::Tensor> rms_norm_branch(const at::Tensor& x, const at::Tensor& weight_D,
                                                  double epsilon, double offset = 0);

// Under sequence parallelism, each rank normalises its own rows, and the weight's gradient is
// summed over the ranks.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
          double offset = 0);
  at::Tensor forward(const at::Tensor& x) { return branch(x).second; }
  std::pair<at::Tensor, at::Tensor> branch(const at::Tensor& x);

  at::Tensor weight_D;

 private:
  double epsilon_;
  double offset_;
  parallel::TensorAxis axis_;
};

// A norm whose weight every rank of the tensor axis has and uses for its own heads: that of each
// head's queries, or of a latent that all heads read. The weight's gradient is summed over the
// ranks.
class SharedNorm : public torch::nn::Module {
 public:
  SharedNorm(int64_t width, double epsilon, const parallel::TensorAxis& axis, at::ScalarType dtype,
             double offset = 0);
  // Each `width` consecutive elements are normed together.
  // Shapes: x [..., n * width] -> the same
  at::Tensor forward(const at::Tensor& x) const;
  double epsilon() const { return epsilon_; }
  double offset() const { return offset_; }

  at::Tensor weight_H;

 private:
  double epsilon_;
  double offset_;
  parallel::TensorAxis axis_;
};

}  // namespace trireme::model
