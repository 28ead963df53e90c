#include "trireme/model/layers/rotary_decoder.h"

#include <ATen/ATen.h>

#include "trireme/model/layers/linear.h"

namespace trireme::model {

RotaryDecoder::RotaryDecoder(const ModelConfig& config, const ModelPart& part, at::ScalarType dtype,
                             const DecoderOptions& options)
    : Network(part),
      options_(options),
      rotary_(config, dtype),
      dropout_(config.dropout, "embedding") {}

void RotaryDecoder::add_tokens(torch::nn::Module& model, const ModelConfig& config,
                               const ModelAxes& axes, at::ScalarType dtype) {
  embed_tokens_ =
      model.register_module("embed_tokens", std::make_shared<TokenEmbedding>(config, axes, dtype));
  add_embedding("embed_tokens", embed_tokens_->parameters());
  if (config.tied_embedding) tie_head(embed_tokens_->weight_VD);
}

void RotaryDecoder::add_end(torch::nn::Module& model, const ModelConfig& config,
                            const ModelAxes& axes, at::ScalarType dtype) {
  norm_ = model.register_module(
      "norm", std::make_shared<RmsNorm>(config, axes, dtype, options_.norm_offset));
  add_norm("norm", norm_->parameters());
  if (config.tied_embedding) return;
  const int64_t v = TensorCuts(config, axes.tensor.size()).vocab_of(axes.tensor.rank()).size;
  const auto lm_head =
      register_module("lm_head", std::make_shared<Linear>(config.width, v, false, dtype));
  add_head("lm_head", lm_head->weight);
}

at::Tensor RotaryDecoder::embed(const at::Tensor& tokens_BT, const TokenBatch& batch) {
  at::Tensor x = embed_tokens_->forward(tokens_BT);
  if (options_.embedding_scale != 1) x = x * options_.embedding_scale;
  return dropout_.forward(x, batch);
}

// The head's loss is fused with its product, which is linear: its input is divided instead.
at::Tensor RotaryDecoder::last_norm(const at::Tensor& x, const TokenBatch& /*batch*/) {
  const at::Tensor y = norm_->forward(x);
  return options_.logits_divisor == 1 ? y : y / options_.logits_divisor;
}

}  // namespace trireme::model
