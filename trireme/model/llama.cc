#include "trireme/model/llama.h"

#include <string>

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

at::Tensor LlamaBlock::forward(const at::Tensor& x_BTD, const RotaryTable& rotary) {
  const auto [x0_BTD, normed0_BTD] = input_layernorm->branch(x_BTD);
  const at::Tensor attended_BTD = self_attn->forward(normed0_BTD, x0_BTD, rotary);
  const auto [x1_BTD, normed1_BTD] = post_attention_layernorm->branch(attended_BTD);
  return mlp->forward(normed1_BTD, x1_BTD);
}

Llama::Llama(const ModelConfig& config, at::ScalarType dtype)
    : rotary_(config.sequence_length, config.head_width(), config.rope_base, dtype) {
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

at::Tensor Llama::hidden(const at::Tensor& tokens_BT) {
  at::Tensor x_BTD = embed_tokens_->forward(tokens_BT);
  for (const auto& block : blocks_) x_BTD = block->forward(x_BTD, rotary_);
  return norm_->forward(x_BTD);
}

}  // namespace trireme::model
