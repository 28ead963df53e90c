// GPT-2: layer norm before each branch, learned positions, biases, and a head that is the embedding
// unless model.separate_head gives it a weight.
// Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3
#pragma once

#include <memory>

#include "trireme/model/family/family.h"
#include "trireme/model/family/network.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/embedding.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

// x + attention(norm(x)), then the same with the feed-forward.
class Gpt2Block : public TransformerBlock {
 public:
  // layer: the block's number in the whole model.
  Gpt2Block(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);

 private:
  at::Tensor compute(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<LayerNorm> ln_1_;
  std::shared_ptr<Attention> attn_;
  std::shared_ptr<LayerNorm> ln_2_;
  std::shared_ptr<GeluFeedForward> mlp_;
};

// Embeddings, blocks and norm, as far as the part has them.
class Gpt2 : public Network {
 public:
  Gpt2(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
       at::ScalarType dtype);

 private:
  at::Tensor embed(const at::Tensor& tokens_BT, const TokenBatch& batch) override;
  at::Tensor last_norm(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<TokenEmbedding> wte_;     // null: the part does not embed
  std::shared_ptr<PositionEmbedding> wpe_;  // null: the part does not embed
  Dropout dropout_;                         // of the sum of both embeddings
  std::shared_ptr<LayerNorm> ln_f_;         // null: the part has no head
};

// The plan splits matrices by heads, feed-forward rows and vocabulary. Norms, positions and the
// biases of layers that sum over ranks are whole on every rank.
const Family& gpt2_family();

}  // namespace trireme::model
