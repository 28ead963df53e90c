#include "trireme/model/gpt2.h"

#include <string>

#include <ATen/ATen.h>

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
  return c_proj->forward(
      causal_attention(qkv_BTD[0], qkv_BTD[1], qkv_BTD[2], heads_, /*kv_heads=*/heads_));
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

at::Tensor Gpt2Block::forward(const at::Tensor& x_BTD) {
  const at::Tensor attended_BTD = x_BTD + attn->forward(ln_1->forward(x_BTD));
  return attended_BTD + mlp->forward(ln_2->forward(attended_BTD));
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

at::Tensor Gpt2::hidden(const at::Tensor& tokens_BT) {
  const at::Tensor positions_TD = wpe_->weight_VD.narrow(0, 0, tokens_BT.size(1));
  at::Tensor x_BTD = wte_->forward(tokens_BT) + positions_TD;
  for (const auto& block : blocks_) x_BTD = block->forward(x_BTD);
  return ln_f_->forward(x_BTD);
}

}  // namespace trireme::model
