// The layers of recommendation models, and the gradient before a ReLU and its transpose in one
// pass: oneDNN multiplies both.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

namespace trireme::tasks {

// Fills in samples `begin` to `end`: `grad_out` where y > 0 or y is NaN, else 0.
// Shapes: grad_out, y [B, O] -> grad_BO [B, O], grad_OB [O, B]
struct ReluProblem {
  int64_t B = 0, O = 0;
  const float* grad_out = nullptr;
  const float* y = nullptr;
  float* grad_BO = nullptr;
  float* grad_OB = nullptr;
};
void relu_gradients(const ReluProblem& problem, int64_t begin, int64_t end);

// Parses "512,256"; "" has no numbers.
// key: named in errors
// Throws: ConfigError for any other text, and for a width out of bounds
std::vector<int64_t> parse_widths(const std::string& text, const std::string& key);

// Linear layers with ReLU between them, and after the last one if `ends_with_relu`.
// Shapes: [B, widths.front()] -> [B, widths.back()]
class Mlp : public torch::nn::Module {
 public:
  Mlp(const std::vector<int64_t>& widths, bool ends_with_relu);
  at::Tensor forward(at::Tensor x);

 private:
  torch::nn::ModuleList layers_;
  bool ends_with_relu_;
};

// Operations of the matrix products of one sample's forward.
double mlp_flops(const std::vector<int64_t>& widths);

// x -> x0 * (U V x + b) + x, once per layer.
// Source: Wang et al. 2021, arXiv:2008.13535, section 3.1 and 3.3 (DCN-V2, low rank)
class CrossNetwork : public torch::nn::Module {
 public:
  CrossNetwork(int64_t width, int64_t rank, int64_t layers);
  // Shapes: [B, width] -> the same
  at::Tensor forward(const at::Tensor& x0);

 private:
  torch::nn::ModuleList down_, up_;  // V [rank, width], U [width, rank] with b [width]
};

// Initialises every linear layer of `module`: weights from N(0, 2 / (in + out)), biases from
// N(0, 1 / out). A value depends only on the seed, the parameter's name and the element's index.
// Source: Glorot & Bengio 2010, "Understanding the difficulty of training deep feedforward neural
//         networks", section 4.2.1
void draw_values(torch::nn::Module& module, uint64_t seed);

// A linear layer and its activation as one autograd node, with the faster matrix product.
enum class Activation { kNone, kRelu };

// activation(x W^T + b). On CPUs, fp32 products use oneDNN if libtorch was built with it, because
// MKL does not use AVX-512 on AMD processors. The gradient cannot be differentiated.
// Shapes: x_BI [B, I], weight_OI [O, I], bias_O [O] or undefined -> [B, O]
at::Tensor fused_linear(const at::Tensor& x_BI, const at::Tensor& weight_OI,
                        const at::Tensor& bias_O, Activation activation);

}  // namespace trireme::tasks
