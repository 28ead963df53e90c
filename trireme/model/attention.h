// Causal self-attention with grouped queries and rotary positions, and its core without weights.
// Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.2; grouped queries: Ainslie et al. 2023,
// arXiv:2305.13245, section 2.2
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include "trireme/model/config.h"
#include "trireme/model/linear.h"
#include "trireme/model/rotary.h"

namespace trireme::model {

// softmax(q k^T / sqrt(H), masked to the past) v per head; query head n reads kv head n / (N/K).
// Shapes: q_BTD [B, T, N * H], k_BTG and v_BTG [B, T, K * H] -> [B, T, N * H]
at::Tensor causal_attention(const at::Tensor& q_BTD, const at::Tensor& k_BTG,
                            const at::Tensor& v_BTG, int64_t heads, int64_t kv_heads);

class Attention : public torch::nn::Module {
 public:
  Attention(const ModelConfig& config, at::ScalarType dtype);
  // Adds the attention of x to the residual stream.
  // Shapes: x_BTD, residual_BTD [B, T, D] -> [B, T, D]
  at::Tensor forward(const at::Tensor& x_BTD, const at::Tensor& residual_BTD,
                     const RotaryTable& rotary);

  std::shared_ptr<Linear> q_proj;  // [D, D]
  std::shared_ptr<Linear> k_proj;  // [K * H, D]
  std::shared_ptr<Linear> v_proj;  // [K * H, D]
  std::shared_ptr<Linear> o_proj;  // [D, D]
  bool recompute_core = false;     // softmax(q k^T) v again in backward

 private:
  int64_t heads_;
  int64_t kv_heads_;
};

}  // namespace trireme::model
