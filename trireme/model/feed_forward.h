// The feed-forward halves of a block: SwiGLU (Llama) and the GELU perceptron (GPT-2).
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/config.h"
#include "trireme/model/linear.h"

namespace trireme::model {

// silu(gate) * up. Backward writes the gradients over gate and up, which must therefore be
// intermediate results nobody else keeps; a second backward through the same graph throws.
// Shapes: gate_BTF, up_BTF [..., F] -> [..., F]
// Source: Shazeer 2020, arXiv:2002.05202, section 2
at::Tensor swiglu(const at::Tensor& gate_BTF, const at::Tensor& up_BTF);

class FeedForward : public torch::nn::Module {
 public:
  FeedForward(const ModelConfig& config, at::ScalarType dtype);
  // Adds down(silu(gate(x)) * up(x)) to the residual stream.
  // Shapes: x_BTD, residual_BTD [B, T, D] -> [B, T, D]
  at::Tensor forward(const at::Tensor& x_BTD, const at::Tensor& residual_BTD);

  std::shared_ptr<Linear> gate_proj;  // [F, D]
  std::shared_ptr<Linear> up_proj;    // [F, D]
  std::shared_ptr<Linear> down_proj;  // [D, F]
};

// c_proj(gelu(c_fc(x))), GELU by its tanh approximation.
// Source: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2
class GeluFeedForward : public torch::nn::Module {
 public:
  GeluFeedForward(const ModelConfig& config, at::ScalarType dtype);
  // Shapes: x_BTD [B, T, D] -> [B, T, D]
  at::Tensor forward(const at::Tensor& x_BTD);

  std::shared_ptr<Linear> c_fc;    // [F, D]
  std::shared_ptr<Linear> c_proj;  // [D, F]
};

}  // namespace trireme::model
