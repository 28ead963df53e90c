#include "trireme/model/gemma/gemma.h"

#include <cmath>
#include <string>
#include <utility>

#include <ATen/ATen.h>

namespace trireme::model {
namespace {

// Of the weights of all norms.
constexpr double kNormOffset = 1;

std::shared_ptr<RmsNorm> make_norm(const ModelConfig& config, const ModelAxes& axes,
                                   at::ScalarType dtype) {
  return std::make_shared<RmsNorm>(config, axes, dtype, kNormOffset);
}

// Rounded first, as Gemma was trained: 55.4256 is 55.5 in bf16.
double embedding_scale(const ModelConfig& config, at::ScalarType dtype) {
  return at::scalar_tensor(std::sqrt(static_cast<double>(config.width)), at::dtype(dtype))
      .item<double>();
}

}  // namespace

GemmaBlock::GemmaBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                       int64_t layer)
    : TransformerBlock(config, layer) {
  const AttentionOptions options{.rotary = config.rope.turns(layer),
                                 .window = config.attention.window_of(layer),
                                 .norm_offset = kNormOffset};
  const int64_t rows = TensorCuts(config, axes.tensor.size()).ffn_of(axes.tensor.rank()).size;
  const auto norm = [&](const char* name) {
    return register_module(name, make_norm(config, axes, dtype));
  };
  attention_form_.before = norm("input_layernorm");
  self_attn_ =
      register_attention("self_attn", std::make_shared<Attention>(config, axes, dtype, options));
  attention_form_.after = norm("post_attention_layernorm");
  feed_forward_form_.before = norm("pre_feedforward_layernorm");
  mlp_ = register_feed_forward(
      "mlp", std::make_shared<FeedForward>(config.width, rows, axes, dtype, Gate::kGeluTanh));
  feed_forward_form_.after = norm("post_feedforward_layernorm");
  // A norm would undo the scale of what is dropped before it.
  attention_form_.dropout = std::exchange(self_attn_->dropout, {});
  feed_forward_form_.dropout = std::exchange(mlp_->dropout, {});
}

at::Tensor GemmaBlock::compute(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor y = add_attention(attention_form_, *self_attn_, x, batch);
  return add_feed_forward(feed_forward_form_, *mlp_, y, batch);
}

Gemma::Gemma(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
             at::ScalarType dtype)
    : RotaryDecoder(
          config, part, dtype,
          {.embedding_scale = embedding_scale(config, dtype), .norm_offset = kNormOffset}) {
  add_layers<GemmaBlock>(config, axes, part, dtype);
}

}  // namespace trireme::model
