// Llama: RMSNorm before each branch, rotary positions, grouped queries, SwiGLU, no biases.
// Source: Touvron et al. 2023, arXiv:2302.13971, section 2.2
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/model/family/config.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/embedding.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/model/layers/rms_norm.h"
#include "trireme/model/layers/rotary.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::model {

// x + attention(norm(x)), then the same with the feed-forward.
class LlamaBlock : public torch::nn::Module {
 public:
  // layer: its number in the whole model.
  LlamaBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);
  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  at::Tensor forward(const at::Tensor& x, const TokenBatch& batch);
  void set_recompute(const RecomputePlan& plan);

  std::shared_ptr<RmsNorm> input_layernorm;
  std::shared_ptr<Attention> self_attn;
  std::shared_ptr<RmsNorm> post_attention_layernorm;
  std::shared_ptr<FeedForward> mlp;

 private:
  at::Tensor forward_block(const at::Tensor& x, const TokenBatch& batch);
  RecomputePlan plan_;
};

class Llama : public torch::nn::Module {
 public:
  // Parameters are allocated, not initialised: make_model does that.
  Llama(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
        at::ScalarType dtype);

  // Adds what the layers must know of the batch's positions.
  void complete(TokenBatch& batch) const;
  // x of the part's first layer -> of its last one, after the norm if it has the head.
  // Shapes: tokens_BT [B, T] int64 if the part embeds, else x [B, T, D] or its rows as the tensor
  //         axis holds them -> the same of x
  at::Tensor forward(const at::Tensor& input, const TokenBatch& batch);
  // What turns hidden states into logits: lm_head.weight, or the embedding when tied; undefined
  // where the part has neither.
  const at::Tensor& head_VD() const { return head_VD_; }  // [v, D]
  const std::vector<std::shared_ptr<LlamaBlock>>& blocks() const { return blocks_; }

  // Embedding, blocks, norm, and the head unless it is tied, as far as the part has them; see
  // LanguageModel.
  std::vector<parallel::Unit> units() const;
  size_t head_unit() const;
  parallel::RunUnit run_unit = parallel::run_directly;

 private:
  RotaryTable rotary_;
  std::shared_ptr<TokenEmbedding> embed_tokens_;  // null: the part does not embed
  Dropout dropout_;                               // of the embedding
  std::vector<std::shared_ptr<LlamaBlock>> blocks_;
  std::shared_ptr<RmsNorm> norm_;    // null: the part has no head
  std::shared_ptr<Linear> lm_head_;  // null: tied, or no head
  at::Tensor head_VD_;
};

// Matrices are split by heads, feed-forward rows and vocabulary; norms are whole on every rank.
ModelPlan llama_plan(const ModelConfig& config, int tensor_ranks);

}  // namespace trireme::model
