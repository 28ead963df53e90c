// The feed-forward branches of blocks: SwiGLU, GeGLU and the GELU perceptron.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/family/model_config.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/linear.h"

namespace trireme::model {

// silu(gate) * up. For contiguous tensors on the CPU, except in fp16, backward writes the gradients
// over gate and up. They must therefore be intermediate results that nobody else keeps, and a
// second backward through the same graph throws.
// Shapes: gate_BTF, up_BTF [..., F] -> [..., F]
// Source: Shazeer 2020, arXiv:2002.05202, section 2
at::Tensor swiglu(const at::Tensor& gate_BTF, const at::Tensor& up_BTF);

// (up + 1) gate sigmoid(alpha gate), of a gate that is at most `limit` and an up that is at most
// that size. Computes in fp32 or fp64, and rounds once. Backward writes over gate and up where
// swiglu() does.
// Shapes: gate_BTF, up_BTF [..., F] -> [..., F]
// Source: OpenAI 2025, arXiv:2508.10925; the constants: their code
at::Tensor clamped_swiglu(const at::Tensor& gate_BTF, const at::Tensor& up_BTF, double limit,
                          double alpha);

// The function of the gate of a feed-forward.
enum class Gate {
  kSilu,      // swiglu()
  kGeluTanh,  // GELU with the approximation by tanh: GeGLU
};

// Names of the projections.
struct GateNames {
  const char* gate = "gate_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
};

// Each rank of the tensor axis holds some rows of F.
// Source: Shazeer 2020, arXiv:2002.05202, section 2
class FeedForward : public torch::nn::Module {
 public:
  // width: D; rows: of F that this rank holds.
  FeedForward(int64_t width, int64_t rows, const ModelAxes& axes, at::ScalarType dtype,
              Gate gate = Gate::kSilu, const GateNames& names = {});
  // Adds down(function(gate(x)) * up(x)), after dropout, to the residual stream.
  // Shapes: x, residual [B, T, D], or their rows as the tensor axis holds them; residual undefined:
  //         none -> the same
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const TokenBatch& batch);

  void set_dropout(double probability, const std::string& place) {
    dropout = Dropout(probability, place);
  }

  std::shared_ptr<Linear> gate_proj;  // [f, D]
  std::shared_ptr<Linear> up_proj;    // [f, D]
  std::shared_ptr<Linear> down_proj;  // [D, f]
  Dropout dropout;                    // of down_proj's output

 private:
  parallel::TensorAxis axis_;
  Gate gate_;
};

struct GeluOptions {
  // As at::gelu() names it; "none": GELU itself; "quick": x sigmoid(1.702 x), as CLIP has.
  const char* approximation = "tanh";
  // Names of the projections. A name with dots names modules within modules.
  const char* up = "c_fc";
  const char* down = "c_proj";
  bool bias = true;
  bool relu = false;  // max(0, x) in place of GELU
};

// Adds down(gelu(up(x))), after dropout, to the residual stream. Each rank of the tensor axis holds
// some rows of F.
// Source: Hendrycks & Gimpel 2016, arXiv:1606.08415, section 2
class GeluFeedForward : public torch::nn::Module {
 public:
  GeluFeedForward(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                  const GeluOptions& options = {});
  // Shapes: x, residual [B, T, D], or their rows as the tensor axis holds them -> the same
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual, const TokenBatch& batch);
  void set_dropout(double probability, const std::string& place) {
    dropout = Dropout(probability, place);
  }

  std::shared_ptr<Linear> up_proj;    // [f, D]
  std::shared_ptr<Linear> down_proj;  // [D, f]
  Dropout dropout;                    // of down_proj's output

 private:
  parallel::TensorAxis axis_;
  std::string approximation_;
  bool relu_;
};

}  // namespace trireme::model
