#include "trireme/model/gpt2/gpt2.h"

namespace trireme::model::inline internal {

Gpt2Block::Gpt2Block(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                     int64_t layer)
    : TransformerBlock(config, layer) {
  const AttentionOptions options{.bias = true, .output = "c_proj"};
  ln_1_ = register_module("ln_1", std::make_shared<LayerNorm>(config, axes, dtype));
  attn_ = register_attention("attn", std::make_shared<Attention>(config, axes, dtype, options));
  ln_2_ = register_module("ln_2", std::make_shared<LayerNorm>(config, axes, dtype));
  mlp_ = register_feed_forward("mlp", std::make_shared<GeluFeedForward>(config, axes, dtype));
}

at::Tensor Gpt2Block::compute(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor attended = attend(*attn_, ln_1_->forward(x), x, batch);
  return feed_forward(*mlp_, ln_2_->forward(attended), attended, batch);
}

Gpt2::Gpt2(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
           at::ScalarType dtype)
    : Network(part), dropout_(config.dropout, "embedding") {
  const auto transformer = register_module("transformer", std::make_shared<torch::nn::Module>());
  if (part.embeds) {
    wte_ =
        transformer->register_module("wte", std::make_shared<TokenEmbedding>(config, axes, dtype));
    wpe_ = transformer->register_module("wpe",
                                        std::make_shared<PositionEmbedding>(config, axes, dtype));
    add_embedding("embeddings", {wte_->weight_VD, wpe_->weight_TD});
    tie_head(wte_->weight_VD);
  }
  add_blocks<Gpt2Block>(*transformer, "h", config, axes, dtype);
  if (!part.has_head) return;
  ln_f_ = transformer->register_module("ln_f", std::make_shared<LayerNorm>(config, axes, dtype));
  add_norm("ln_f", ln_f_->parameters());
}

at::Tensor Gpt2::embed(const at::Tensor& tokens_BT, const TokenBatch& batch) {
  return dropout_.forward(wpe_->forward(wte_->forward(tokens_BT), batch), batch);
}

at::Tensor Gpt2::last_norm(const at::Tensor& x) { return ln_f_->forward(x); }

}  // namespace trireme::model::inline internal
