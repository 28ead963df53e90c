#include "trireme/model/llama/llama.h"

#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/latent_attention.h"
#include "trireme/model/layers/linear.h"

namespace trireme::model::inline internal {
namespace {

std::shared_ptr<AttentionBranch> make_attention(const ModelConfig& config, const ModelAxes& axes,
                                                at::ScalarType dtype) {
  if (config.attention.is_latent()) return std::make_shared<LatentAttention>(config, axes, dtype);
  return std::make_shared<Attention>(config, axes, dtype);
}

int64_t rotary_width(const ModelConfig& config) {
  return config.attention.is_latent() ? config.attention.qk_rope_width : config.head_width();
}

}  // namespace

LlamaBlock::LlamaBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                       int64_t layer)
    : TransformerBlock(config, layer) {
  input_layernorm_ =
      register_module("input_layernorm", std::make_shared<RmsNorm>(config, axes, dtype));
  self_attn_ = register_attention("self_attn", make_attention(config, axes, dtype));
  post_attention_layernorm_ =
      register_module("post_attention_layernorm", std::make_shared<RmsNorm>(config, axes, dtype));
  if (config.sparse.is_sparse(layer)) {
    experts_ = register_feed_forward(
        "mlp", std::make_shared<ExpertFeedForward>(config, axes, dtype, layer));
    return;
  }
  const int64_t rows = TensorCuts(config, axes.tensor.size()).ffn_of(axes.tensor.rank()).size;
  mlp_ =
      register_feed_forward("mlp", std::make_shared<FeedForward>(config.width, rows, axes, dtype));
}

at::Tensor LlamaBlock::compute(const at::Tensor& x, const TokenBatch& batch) {
  const auto [x0, normed0] = input_layernorm_->branch(x);
  const auto [x1, normed1] =
      post_attention_layernorm_->branch(attend(*self_attn_, normed0, x0, batch));
  return experts_ ? feed_forward(*experts_, normed1, x1, batch)
                  : feed_forward(*mlp_, normed1, x1, batch);
}

Llama::Llama(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
             at::ScalarType dtype)
    : Network(part),
      rotary_(config.sequence_length, rotary_width(config), config.rope_base, dtype),
      dropout_(config.dropout, "embedding") {
  const auto model = register_module("model", std::make_shared<torch::nn::Module>());
  if (part.embeds) {
    embed_tokens_ = model->register_module("embed_tokens",
                                           std::make_shared<TokenEmbedding>(config, axes, dtype));
    add_embedding("embed_tokens", embed_tokens_->parameters());
    if (config.tied_embedding) tie_head(embed_tokens_->weight_VD);
  }
  add_blocks<LlamaBlock>(*model, "layers", config, axes, dtype);
  if (!part.has_head) return;
  norm_ = model->register_module("norm", std::make_shared<RmsNorm>(config, axes, dtype));
  add_norm("norm", norm_->parameters());
  if (config.tied_embedding) return;
  const int64_t v = TensorCuts(config, axes.tensor.size()).vocab_of(axes.tensor.rank()).size;
  const auto lm_head =
      register_module("lm_head", std::make_shared<Linear>(config.width, v, false, dtype));
  add_head("lm_head", lm_head->weight);
}

void Llama::complete(TokenBatch& batch) const {
  rotary_.move_to(batch.positions_T.device());
  batch.cos_TH = rotary_.cos_TH.index_select(0, batch.positions_T);
  batch.sin_TH = rotary_.sin_TH.index_select(0, batch.positions_T);
}

at::Tensor Llama::embed(const at::Tensor& tokens_BT, const TokenBatch& batch) {
  return dropout_.forward(embed_tokens_->forward(tokens_BT), batch);
}

at::Tensor Llama::last_norm(const at::Tensor& x) { return norm_->forward(x); }

}  // namespace trireme::model::inline internal
