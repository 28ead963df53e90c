// Matrix products with weights of [out, in], as torch and Hugging Face keep them.
#pragma once

#include <array>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

namespace trireme::model {

class Linear : public torch::nn::Module {
 public:
  Linear(int64_t in, int64_t out, bool bias, at::ScalarType dtype);
  // Shapes: x [..., in] -> y [..., out]
  at::Tensor forward(const at::Tensor& x);
  // forward(x) + residual, the sum taken inside the matrix product; without bias.
  // Shapes: x [..., in], residual [..., out] -> y [..., out]
  at::Tensor forward_add(const at::Tensor& x, const at::Tensor& residual);

  at::Tensor weight;  // [out, in]
  at::Tensor bias;    // [out]; undefined without
};

// Several products of one input: {x W0^T, x W1^T (, x W2^T)}. Their backward sums x's gradient
// inside the matrix products: no temporaries, no passes to add them. W2 may be undefined; so is
// its output then.
// Shapes: x [..., in], W_i [out_i, in] -> y_i [..., out_i]
std::array<at::Tensor, 3> project(const at::Tensor& x, const at::Tensor& w0, const at::Tensor& w1,
                                  const at::Tensor& w2 = {});

}  // namespace trireme::model
