#include "trireme/model/llama/llama.h"

#include <string>

#include "trireme/base/error.h"
#include "trireme/model/layers/linear.h"

namespace trireme::model {

LlamaBlock::LlamaBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                       int64_t layer) {
  input_layernorm =
      register_module("input_layernorm", std::make_shared<RmsNorm>(config, axes, dtype));
  self_attn = register_module("self_attn", std::make_shared<Attention>(config, axes, dtype));
  post_attention_layernorm =
      register_module("post_attention_layernorm", std::make_shared<RmsNorm>(config, axes, dtype));
  mlp = register_module("mlp", std::make_shared<FeedForward>(config, axes, dtype));
  self_attn->dropout = Dropout(config.dropout, concat("blocks.", layer, ".attention"));
  mlp->dropout = Dropout(config.dropout, concat("blocks.", layer, ".feed_forward"));
}

void LlamaBlock::set_recompute(const RecomputePlan& plan) {
  plan_ = plan;
  self_attn->recompute_core = plan.attention_core;
}

at::Tensor LlamaBlock::forward(const at::Tensor& x, const TokenBatch& batch) {
  return recompute_if(
      plan_.block,
      [this, batch](const std::vector<at::Tensor>& in) { return forward_block(in[0], batch); },
      {x});
}

at::Tensor LlamaBlock::forward_block(const at::Tensor& x, const TokenBatch& batch) {
  const auto [x0, normed0] = input_layernorm->branch(x);
  const at::Tensor attended = recompute_if(plan_.attention,
                                           [this, batch](const std::vector<at::Tensor>& in) {
                                             return self_attn->forward(in[0], in[1], batch);
                                           },
                                           {normed0, x0});
  const auto [x1, normed1] = post_attention_layernorm->branch(attended);
  return recompute_if(plan_.feed_forward,
                      [this, batch](const std::vector<at::Tensor>& in) {
                        return mlp->forward(in[0], in[1], batch);
                      },
                      {normed1, x1});
}

Llama::Llama(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
             at::ScalarType dtype)
    : rotary_(config.sequence_length, config.head_width(), config.rope_base, dtype),
      dropout_(config.dropout, "embedding") {
  const auto folder = [] { return std::make_shared<torch::nn::Module>(); };
  const auto model = register_module("model", folder());
  if (part.embeds) {
    embed_tokens_ = model->register_module("embed_tokens",
                                           std::make_shared<TokenEmbedding>(config, axes, dtype));
    if (config.tied_embedding) head_VD_ = embed_tokens_->weight_VD;
  }
  const auto layers = model->register_module("layers", folder());
  for (int64_t i = 0; i < part.num_layers; ++i) {
    blocks_.push_back(layers->register_module(
        std::to_string(part.first_layer + i),
        std::make_shared<LlamaBlock>(config, axes, dtype, part.first_layer + i)));
  }
  if (!part.has_head) return;
  norm_ = model->register_module("norm", std::make_shared<RmsNorm>(config, axes, dtype));
  if (config.tied_embedding) return;
  const int64_t v = TensorCuts(config, axes.tensor.size()).vocab_of(axes.tensor.rank()).size;
  lm_head_ = register_module("lm_head", std::make_shared<Linear>(config.width, v, false, dtype));
  head_VD_ = lm_head_->weight;
}

std::vector<parallel::Unit> Llama::units() const {
  // Neither the embedding's nor the fused head's backward reads the weights.
  std::vector<parallel::Unit> units;
  if (embed_tokens_) {
    units.push_back({"embed_tokens", embed_tokens_->parameters(), /*weights_in_backward=*/false});
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    units.push_back({concat("layers.", i), blocks_[i]->parameters()});
  }
  if (norm_) units.push_back({"norm", norm_->parameters()});
  if (lm_head_) units.push_back({"lm_head", {head_VD_}, /*weights_in_backward=*/false});
  return units;
}

size_t Llama::head_unit() const { return lm_head_ ? blocks_.size() + (embed_tokens_ ? 2 : 1) : 0; }

void Llama::complete(TokenBatch& batch) const {
  batch.cos_TH = rotary_.cos_TH.index_select(0, batch.positions_T);
  batch.sin_TH = rotary_.sin_TH.index_select(0, batch.positions_T);
}

at::Tensor Llama::forward(const at::Tensor& input, const TokenBatch& batch) {
  size_t unit = 0;
  at::Tensor x = input;
  if (embed_tokens_) {
    x = run_unit(unit++, x, [&](const at::Tensor& tokens) {
      return dropout_.forward(embed_tokens_->forward(tokens), batch);
    });
  }
  for (const auto& block : blocks_) {
    x = run_unit(unit++, x, [&](const at::Tensor& in) { return block->forward(in, batch); });
  }
  if (!norm_) return x;
  return run_unit(unit, x, [this](const at::Tensor& in) { return norm_->forward(in); });
}

ModelPlan llama_plan(const ModelConfig& config, int tensor_ranks) {
  ModelPlan plan(config, tensor_ranks);
  const TensorCuts& cuts = plan.cuts();
  const int64_t D = config.width, F = config.ffn_width, V = config.vocab_size;
  const int64_t H = config.head_width(), G = config.kv_heads * H;
  plan.add_split("model.embed_tokens.weight", {V, D}, 0, cuts.vocab);
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = concat("model.layers.", layer, ".");
    plan.add_whole(block + "input_layernorm.weight", {D});
    plan.add_split(block + "self_attn.q_proj.weight", {D, D}, 0, cuts.heads, H);
    plan.add_split(block + "self_attn.k_proj.weight", {G, D}, 0, cuts.kv_heads, H);
    plan.add_split(block + "self_attn.v_proj.weight", {G, D}, 0, cuts.kv_heads, H);
    plan.add_split(block + "self_attn.o_proj.weight", {D, D}, 1, cuts.heads, H);
    plan.add_whole(block + "post_attention_layernorm.weight", {D});
    plan.add_split(block + "mlp.gate_proj.weight", {F, D}, 0, cuts.ffn);
    plan.add_split(block + "mlp.up_proj.weight", {F, D}, 0, cuts.ffn);
    plan.add_split(block + "mlp.down_proj.weight", {D, F}, 1, cuts.ffn);
  }
  plan.add_whole("model.norm.weight", {D});
  if (!config.tied_embedding) plan.add_split("lm_head.weight", {V, D}, 0, cuts.vocab);
  return plan;
}

}  // namespace trireme::model
