// GPT-2: layer norm before each branch, learned positions, biases, tied embedding.
// Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3
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
#include "trireme/model/layers/layer_norm.h"
#include "trireme/model/layers/recompute.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::model {

class Gpt2Block : public torch::nn::Module {
 public:
  // layer: its number in the whole model.
  Gpt2Block(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);
  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  at::Tensor forward(const at::Tensor& x, const TokenBatch& batch);
  void set_recompute(const RecomputePlan& plan);

  std::shared_ptr<LayerNorm> ln_1;
  std::shared_ptr<Attention> attn;
  std::shared_ptr<LayerNorm> ln_2;
  std::shared_ptr<GeluFeedForward> mlp;

 private:
  at::Tensor forward_block(const at::Tensor& x, const TokenBatch& batch);
  RecomputePlan plan_;
};

class Gpt2 : public torch::nn::Module {
 public:
  // Parameters are allocated, not initialised: make_model does that.
  Gpt2(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
       at::ScalarType dtype);

  void complete(TokenBatch& /*batch*/) const {}
  // x of the part's first layer -> of its last one, after the norm if it has the head.
  // Shapes: tokens_BT [B, T] int64 if the part embeds, else x [B, T, D] or its rows as the tensor
  //         axis holds them -> the same of x
  at::Tensor forward(const at::Tensor& input, const TokenBatch& batch);
  // The token embedding; undefined where the part has none.
  const at::Tensor& head_VD() const { return head_VD_; }  // [v, D]
  const std::vector<std::shared_ptr<Gpt2Block>>& blocks() const { return blocks_; }

  // Embeddings, blocks, norm, as far as the part has them; the head is the embedding. See
  // LanguageModel.
  std::vector<parallel::Unit> units() const;
  size_t head_unit() const { return 0; }
  parallel::RunUnit run_unit = parallel::run_directly;

 private:
  std::shared_ptr<TokenEmbedding> wte_;     // null: the part does not embed
  std::shared_ptr<PositionEmbedding> wpe_;  // the same
  Dropout dropout_;                         // of the sum of both
  std::vector<std::shared_ptr<Gpt2Block>> blocks_;
  std::shared_ptr<LayerNorm> ln_f_;  // null: the part has no head
  at::Tensor head_VD_;
};

// Matrices are split by heads, feed-forward rows and vocabulary; norms, positions and the biases of
// layers that sum over ranks are whole on every rank.
ModelPlan gpt2_plan(const ModelConfig& config, int tensor_ranks);

}  // namespace trireme::model
