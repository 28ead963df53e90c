// GPT-2: layer norm before each branch, learned positions, biases, tied embedding.
// Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3
#pragma once

#include <memory>
#include <vector>

#include <torch/nn/module.h>

#include "trireme/model/config.h"
#include "trireme/model/embedding.h"
#include "trireme/model/feed_forward.h"
#include "trireme/model/layer_norm.h"
#include "trireme/model/linear.h"
#include "trireme/model/recompute.h"
#include "trireme/parallel/data/unit.h"

namespace trireme::model {

// Multi-head causal attention, its three projections in one matrix.
class Gpt2Attention : public torch::nn::Module {
 public:
  Gpt2Attention(const ModelConfig& config, at::ScalarType dtype);
  // Shapes: x_BTD [B, T, D] -> [B, T, D]
  at::Tensor forward(const at::Tensor& x_BTD);

  std::shared_ptr<Linear> c_attn;  // [3 * D, D]: rows of q, then k, then v
  std::shared_ptr<Linear> c_proj;  // [D, D]
  bool recompute_core = false;     // softmax(q k^T) v again in backward

 private:
  int64_t heads_;
};

class Gpt2Block : public torch::nn::Module {
 public:
  Gpt2Block(const ModelConfig& config, at::ScalarType dtype);
  // Shapes: x_BTD [B, T, D] -> [B, T, D]
  at::Tensor forward(const at::Tensor& x_BTD);
  void set_recompute(const RecomputePlan& plan);

  std::shared_ptr<LayerNorm> ln_1;
  std::shared_ptr<Gpt2Attention> attn;
  std::shared_ptr<LayerNorm> ln_2;
  std::shared_ptr<GeluFeedForward> mlp;

 private:
  at::Tensor forward_block(const at::Tensor& x_BTD);
  RecomputePlan plan_;
};

class Gpt2 : public torch::nn::Module {
 public:
  // Parameters are allocated, not initialised: make_model does that.
  Gpt2(const ModelConfig& config, at::ScalarType dtype);

  // Shapes: tokens_BT [B, T] int64 -> [B, T, D], after the last norm
  at::Tensor hidden(const at::Tensor& tokens_BT);
  const at::Tensor& head_VD() const { return wte_->weight_VD; }
  const std::vector<std::shared_ptr<Gpt2Block>>& blocks() const { return blocks_; }

  // Embeddings, blocks, norm; the head is the embedding. See LanguageModel.
  std::vector<parallel::Unit> units() const;
  size_t head_unit() const { return 0; }
  parallel::RunUnit run_unit = parallel::run_directly;

 private:
  std::shared_ptr<Embedding> wte_;  // [V, D]
  std::shared_ptr<Embedding> wpe_;  // [sequence_length, D]
  std::vector<std::shared_ptr<Gpt2Block>> blocks_;
  std::shared_ptr<LayerNorm> ln_f_;
};

}  // namespace trireme::model
