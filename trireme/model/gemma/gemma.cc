#include "trireme/model/gemma/gemma.h"

#include <cmath>
#include <string>
#include <utility>

#include <ATen/ATen.h>

#include "trireme/model/layers/linear.h"

namespace trireme::model {
namespace {

// Of the weights of all norms.
constexpr double kNormOffset = 1;

std::shared_ptr<RmsNorm> make_norm(const ModelConfig& config, const ModelAxes& axes,
                                   at::ScalarType dtype) {
  return std::make_shared<RmsNorm>(config, axes, dtype, kNormOffset);
}

}  // namespace

GemmaBlock::GemmaBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                       int64_t layer)
    : TransformerBlock(config, layer) {
  const AttentionOptions options{.window = config.attention.window_of(layer),
                                 .norm_offset = kNormOffset};
  const int64_t rows = TensorCuts(config, axes.tensor.size()).ffn_of(axes.tensor.rank()).size;
  const auto norm = [&](const char* name) {
    return register_module(name, make_norm(config, axes, dtype));
  };
  input_layernorm_ = norm("input_layernorm");
  self_attn_ =
      register_attention("self_attn", std::make_shared<Attention>(config, axes, dtype, options));
  post_attention_layernorm_ = norm("post_attention_layernorm");
  pre_feedforward_layernorm_ = norm("pre_feedforward_layernorm");
  mlp_ = register_feed_forward(
      "mlp", std::make_shared<FeedForward>(config.width, rows, axes, dtype, Gate::kGeluTanh));
  post_feedforward_layernorm_ = norm("post_feedforward_layernorm");
  // A norm would undo the scale of what is dropped before it.
  attention_dropout_ = std::exchange(self_attn_->dropout, {});
  feed_forward_dropout_ = std::exchange(mlp_->dropout, {});
}

at::Tensor GemmaBlock::compute(const at::Tensor& x, const TokenBatch& batch) {
  const auto [x0, normed0] = input_layernorm_->branch(x);
  const at::Tensor attended = attend(*self_attn_, normed0, {}, batch);
  const at::Tensor sum =
      attention_dropout_.add(post_attention_layernorm_->forward(attended), x0, batch);
  const auto [x1, normed1] = pre_feedforward_layernorm_->branch(sum);
  const at::Tensor fed = feed_forward(*mlp_, normed1, {}, batch);
  return feed_forward_dropout_.add(post_feedforward_layernorm_->forward(fed), x1, batch);
}

Gemma::Gemma(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
             at::ScalarType dtype)
    : Network(part),
      rotary_(config, dtype),
      embedding_scale_(std::sqrt(static_cast<double>(config.width))),
      dropout_(config.dropout, "embedding") {
  const auto model = register_module("model", std::make_shared<torch::nn::Module>());
  if (part.embeds) {
    embed_tokens_ = model->register_module("embed_tokens",
                                           std::make_shared<TokenEmbedding>(config, axes, dtype));
    add_embedding("embed_tokens", embed_tokens_->parameters());
    if (config.tied_embedding) tie_head(embed_tokens_->weight_VD);
  }
  add_blocks<GemmaBlock>(*model, "layers", config, axes, dtype);
  if (!part.has_head) return;
  norm_ = model->register_module("norm", make_norm(config, axes, dtype));
  add_norm("norm", norm_->parameters());
  if (config.tied_embedding) return;
  const int64_t v = TensorCuts(config, axes.tensor.size()).vocab_of(axes.tensor.rank()).size;
  const auto lm_head =
      register_module("lm_head", std::make_shared<Linear>(config.width, v, false, dtype));
  add_head("lm_head", lm_head->weight);
}

at::Tensor Gemma::embed(const at::Tensor& tokens_BT, const TokenBatch& batch) {
  const at::Tensor x = embed_tokens_->forward(tokens_BT);
  // Rounded to the dtype first, as the models were trained: 55.4256 is 55.5 in bf16.
  const at::Tensor scale = at::scalar_tensor(embedding_scale_, x.options());
  return dropout_.forward(x * scale, batch);
}

}  // namespace trireme::model
