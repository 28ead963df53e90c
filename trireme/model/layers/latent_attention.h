// Attention whose keys and values come from a latent that is narrower than the heads together.
// Source: DeepSeek-AI 2024, arXiv:2405.04434, section 2.1 (multi-head latent attention)
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "trireme/model/family/model_config.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

// Every rank of the tensor axis has both latents whole, and some of the heads. P and R: widths of a
// head's queries and keys without and with rotary positions, V: of its values.
class LatentAttention : public AttentionBranch {
 public:
  LatentAttention(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Comm: with a tensor axis, in backward also the sum of the latents' projections and norms over
  //       the ranks, 4 bytes for each of their elements (fp64: 8)
  at::Tensor forward(const at::Tensor& x, const at::Tensor& residual,
                     const TokenBatch& batch) override;

  std::shared_ptr<Linear> q_proj;              // [n * (P + R), D]; only without a latent of q
  std::shared_ptr<Linear> q_a_proj;            // [q_lora_rank, D]
  std::shared_ptr<SharedNorm> q_a_layernorm;   // [q_lora_rank]
  std::shared_ptr<Linear> q_b_proj;            // [n * (P + R), q_lora_rank]
  std::shared_ptr<Linear> kv_a_proj_with_mqa;  // [kv_lora_rank + R, D]
  std::shared_ptr<SharedNorm> kv_a_layernorm;  // [kv_lora_rank]
  std::shared_ptr<Linear> kv_b_proj;           // [n * (P + V), kv_lora_rank]
  std::shared_ptr<Linear> o_proj;              // [D, n * V]

 private:
  // This rank's heads of the projections' outputs.
  struct Heads {
    at::Tensor q_BTnQ, k_BTnQ, v_BTnV;  // Q = P + R
  };
  Heads project(const at::Tensor& x, const TokenBatch& batch) const;

  AttentionConfig config_;
  double score_factor_;  // of yarn
  parallel::TensorAxis axis_;
  int64_t heads_;  // n
};

}  // namespace trireme::model
