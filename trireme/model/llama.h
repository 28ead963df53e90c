// Llama: RMSNorm before each branch, rotary positions, grouped queries, SwiGLU, no biases.
// Source: Touvron et al. 2023, arXiv:2302.13971, section 2.2
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/model/attention.h"
#include "trireme/model/config.h"
#include "trireme/model/embedding.h"
#include "trireme/model/feed_forward.h"
#include "trireme/model/recompute.h"
#include "trireme/model/rms_norm.h"
#include "trireme/model/rotary.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::model {

// x + attention(norm(x)), then the same with the feed-forward.
class LlamaBlock : public torch::nn::Module {
 public:
  LlamaBlock(const ModelConfig& config, at::ScalarType dtype);
  // Shapes: x_BTD [B, T, D] -> [B, T, D]
  at::Tensor forward(const at::Tensor& x_BTD, const RotaryTable& rotary);
  void set_recompute(const RecomputePlan& plan);

  std::shared_ptr<RmsNorm> input_layernorm;
  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<RmsNorm> post_attention_layernorm;
  std::shared_ptr<FeedForward> mlp;

 private:
  at::Tensor forward_block(const at::Tensor& x_BTD, const RotaryTable& rotary);
  RecomputePlan plan_;
};

class Llama : public torch::nn::Module {
 public:
  // Parameters are allocated, not initialised: make_model does that.
  Llama(const ModelConfig& config, at::ScalarType dtype);

  // Shapes: tokens_BT [B, T] int64 -> [B, T, D], after the last norm
  at::Tensor hidden(const at::Tensor& tokens_BT);
  // What turns hidden states into logits: lm_head.weight, or the embedding when tied.
  const at::Tensor& head_VD() const { return head_VD_; }
  const std::vector<std::shared_ptr<LlamaBlock>>& blocks() const { return blocks_; }

  // Embedding, blocks, norm, and the head unless it is tied; see LanguageModel.
  std::vector<parallel::Unit> units() const;
  size_t head_unit() const { return tied_ ? 0 : blocks_.size() + 2; }
  parallel::RunUnit run_unit = parallel::run_directly;

 private:
  RotaryTable rotary_;
  std::shared_ptr<Embedding> embed_tokens_;
  std::vector<std::shared_ptr<LlamaBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;
  at::Tensor head_VD_;
  bool tied_;
};

}  // namespace trireme::model
