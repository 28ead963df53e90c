#include "trireme/model/gpt2.h"

#include <string>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/attention.h"

namespace trireme::model {

Gpt2Attention::Gpt2Attention(const ModelConfig& config, at::ScalarType dtype)
    : heads_(config.heads) {
  const int64_t D = config.width;
  c_attn = register_module("c_attn", std::make_shared<Linear>(D, 3 * D, true, dtype));
  c_proj = register_module("c_proj", std::make_shared<Linear>(D, D, true, dtype));
}

at::Tensor Gpt2Attention::forward(const at::Tensor& x_BTD) {
  const std::vector<at::Tensor> qkv_BTD = c_attn->forward(x_BTD).chunk(3, -1);
  const auto core = [heads = heads_](const std::vector<at::Tensor>& x) {
    return causal_attention(x[0], x[1], x[2], heads, /*kv_heads=*/heads);
  };
  return c_proj->forward(recompute_if(recompute_core, core, qkv_BTD));
}

Gpt2Block::Gpt2Block(const ModelConfig& config, at::ScalarType dtype) {
  const auto norm = [&] {
    return std::make_shared<LayerNorm>(config.width, config.norm_epsilon, dtype);
  };
  ln_1 = register_module("ln_1", norm());
  attn = register_module("attn", std::make_shared<Gpt2Attention>(config, dtype));
  ln_2 = register_module("ln_2", norm());
  mlp = register_module("mlp", std::make_shared<GeluFeedForward>(config, dtype));
}

void Gpt2Block::set_recompute(const RecomputePlan& plan) {
  plan_ = plan;
  attn->recompute_core = plan.attention_core;
}

at::Tensor Gpt2Block::forward(const at::Tensor& x_BTD) {
  return recompute_if(plan_.block,
                      [this](const std::vector<at::Tensor>& x) { return forward_block(x[0]); },
                      {x_BTD});
}

at::Tensor Gpt2Block::forward_block(const at::Tensor& x_BTD) {
  const at::Tensor attended_BTD =
      x_BTD + recompute_if(plan_.attention,
                           [this](const std::vector<at::Tensor>& x) { return attn->forward(x[0]); },
                           {ln_1->forward(x_BTD)});
  return attended_BTD +
         recompute_if(plan_.feed_forward,
                      [this](const std::vector<at::Tensor>& x) { return mlp->forward(x[0]); },
                      {ln_2->forward(attended_BTD)});
}

Gpt2::Gpt2(const ModelConfig& config, at::ScalarType dtype) {
  const int64_t D = config.width;
  const auto transformer = register_module("transformer", std::make_shared<torch::nn::Module>());
  wte_ =
      transformer->register_module("wte", std::make_shared<Embedding>(config.vocab_size, D, dtype));
  wpe_ = transformer->register_module(
      "wpe", std::make_shared<Embedding>(config.sequence_length, D, dtype));
  const auto h = transformer->register_module("h", std::make_shared<torch::nn::Module>());
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    blocks_.push_back(
        h->register_module(std::to_string(layer), std::make_shared<Gpt2Block>(config, dtype)));
  }
  ln_f_ = transformer->register_module("ln_f",
                                       std::make_shared<LayerNorm>(D, config.norm_epsilon, dtype));
}

std::vector<parallel::Unit> Gpt2::units() const {
  // Neither the embeddings' nor the fused head's backward reads the weights.
  std::vector<parallel::Unit> units{
      {"embeddings", {wte_->weight_VD, wpe_->weight_VD}, /*weights_in_backward=*/false}};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    units.push_back({concat("h.", i), blocks_[i]->parameters()});
  }
  units.push_back({"ln_f", ln_f_->parameters()});
  return units;
}

at::Tensor Gpt2::hidden(const at::Tensor& tokens_BT) {
  at::Tensor x_BTD = run_unit(0, tokens_BT, [this](const at::Tensor& tokens) {
    return wte_->forward(tokens) + wpe_->weight_VD.narrow(0, 0, tokens.size(1));
  });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x_BTD =
        run_unit(i + 1, x_BTD, [this, i](const at::Tensor& x) { return blocks_[i]->forward(x); });
  }
  return run_unit(blocks_.size() + 1, x_BTD,
                  [this](const at::Tensor& x) { return ln_f_->forward(x); });
}

}  // namespace trireme::model
