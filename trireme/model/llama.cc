#include "trireme/model/llama.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/model/linear.h"

namespace trireme::model {

LlamaBlock::LlamaBlock(const ModelConfig& config, at::ScalarType dtype) {
  const auto norm = [&] {
    return std::make_shared<RmsNorm>(config.width, config.norm_epsilon, dtype);
  };
  input_layernorm = register_module("input_layernorm", norm());
  self_attn = register_module("self_attn", std::make_shared<Attention>(config, dtype));
  post_attention_layernorm = register_module("post_attention_layernorm", norm());
  mlp = register_module("mlp", std::make_shared<FeedForward>(config, dtype));
}

void LlamaBlock::set_recompute(const RecomputePlan& plan) {
  plan_ = plan;
  self_attn->recompute_core = plan.attention_core;
}

at::Tensor LlamaBlock::forward(const at::Tensor& x_BTD, const RotaryTable& rotary) {
  return recompute_if(
      plan_.block,
      [this, &rotary](const std::vector<at::Tensor>& x) { return forward_block(x[0], rotary); },
      {x_BTD});
}

at::Tensor LlamaBlock::forward_block(const at::Tensor& x_BTD, const RotaryTable& rotary) {
  const auto [x0_BTD, normed0_BTD] = input_layernorm->branch(x_BTD);
  const at::Tensor attended_BTD = recompute_if(plan_.attention,
                                               [this, &rotary](const std::vector<at::Tensor>& x) {
                                                 return self_attn->forward(x[0], x[1], rotary);
                                               },
                                               {normed0_BTD, x0_BTD});
  const auto [x1_BTD, normed1_BTD] = post_attention_layernorm->branch(attended_BTD);
  return recompute_if(plan_.feed_forward,
                      [this](const std::vector<at::Tensor>& x) { return mlp->forward(x[0], x[1]); },
                      {normed1_BTD, x1_BTD});
}

Llama::Llama(const ModelConfig& config, at::ScalarType dtype)
    : rotary_(config.sequence_length, config.head_width(), config.rope_base, dtype),
      tied_(config.tied_embedding) {
  const auto folder = [] { return std::make_shared<torch::nn::Module>(); };
  const auto model = register_module("model", folder());
  embed_tokens_ = model->register_module(
      "embed_tokens", std::make_shared<Embedding>(config.vocab_size, config.width, dtype));
  const auto layers = model->register_module("layers", folder());
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    blocks_.push_back(layers->register_module(std::to_string(layer),
                                              std::make_shared<LlamaBlock>(config, dtype)));
  }
  norm_ = model->register_module(
      "norm", std::make_shared<RmsNorm>(config.width, config.norm_epsilon, dtype));
  if (config.tied_embedding) {
    head_VD_ = embed_tokens_->weight_VD;
  } else {
    const auto lm_head = std::make_shared<Linear>(config.width, config.vocab_size, false, dtype);
    head_VD_ = register_module("lm_head", lm_head)->weight;
  }
}

std::vector<parallel::Unit> Llama::units() const {
  // Neither the embedding's nor the fused head's backward reads the weights.
  std::vector<parallel::Unit> units{
      {"embed_tokens", embed_tokens_->parameters(), /*weights_in_backward=*/false}};
  for (size_t i = 0; i < blocks_.size(); ++i) {
    units.push_back({concat("layers.", i), blocks_[i]->parameters()});
  }
  units.push_back({"norm", norm_->parameters()});
  if (!tied_) units.push_back({"lm_head", {head_VD_}, /*weights_in_backward=*/false});
  return units;
}

at::Tensor Llama::hidden(const at::Tensor& tokens_BT) {
  at::Tensor x_BTD = run_unit(
      0, tokens_BT, [this](const at::Tensor& tokens) { return embed_tokens_->forward(tokens); });
  for (size_t i = 0; i < blocks_.size(); ++i) {
    x_BTD = run_unit(i + 1, x_BTD,
                     [this, i](const at::Tensor& x) { return blocks_[i]->forward(x, rotary_); });
  }
  return run_unit(blocks_.size() + 1, x_BTD,
                  [this](const at::Tensor& x) { return norm_->forward(x); });
}

}  // namespace trireme::model
