#include "trireme/model/gpt2/gpt2.h"

#include <string>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/attention.h"

namespace trireme::model {

Gpt2Block::Gpt2Block(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                     int64_t layer) {
  ln_1 = register_module("ln_1", std::make_shared<LayerNorm>(config, axes, dtype));
  attn = register_module(
      "attn", std::make_shared<Attention>(config, axes, dtype,
                                          AttentionOptions{.bias = true, .output_name = "c_proj"}));
  ln_2 = register_module("ln_2", std::make_shared<LayerNorm>(config, axes, dtype));
  mlp = register_module("mlp", std::make_shared<GeluFeedForward>(config, axes, dtype));
  attn->dropout = Dropout(config.dropout, concat("blocks.", layer, ".attention"));
  mlp->dropout = Dropout(config.dropout, concat("blocks.", layer, ".feed_forward"));
}

void Gpt2Block::set_recompute(const RecomputePlan& plan) {
  plan_ = plan;
  attn->recompute_core = plan.attention_core;
}

at::Tensor Gpt2Block::forward(const at::Tensor& x, const TokenBatch& batch) {
  return recompute_if(
      plan_.block,
      [this, batch](const std::vector<at::Tensor>& in) { return forward_block(in[0], batch); },
      {x});
}

at::Tensor Gpt2Block::forward_block(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor attended = recompute_if(plan_.attention,
                                           [this, batch](const std::vector<at::Tensor>& in) {
                                             return attn->forward(in[0], in[1], batch);
                                           },
                                           {ln_1->forward(x), x});
  return recompute_if(plan_.feed_forward,
                      [this, batch](const std::vector<at::Tensor>& in) {
                        return mlp->forward(in[0], in[1], batch);
                      },
                      {ln_2->forward(attended), attended});
}

Gpt2::Gpt2(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
           at::ScalarType dtype)
    : dropout_(config.dropout, "embedding") {
  const auto transformer = register_module("transformer", std::make_shared<torch::nn::Module>());
  if (part.embeds) {
    wte_ =
        transformer->register_module("wte", std::make_shared<TokenEmbedding>(config, axes, dtype));
    wpe_ = transformer->register_module("wpe",
                                        std::make_shared<PositionEmbedding>(config, axes, dtype));
    head_VD_ = wte_->weight_VD;
  }
  const auto h = transformer->register_module("h", std::make_shared<torch::nn::Module>());
  for (int64_t i = 0; i < part.num_layers; ++i) {
    blocks_.push_back(
        h->register_module(std::to_string(part.first_layer + i),
                           std::make_shared<Gpt2Block>(config, axes, dtype, part.first_layer + i)));
  }
  if (part.has_head) {
    ln_f_ = transformer->register_module("ln_f", std::make_shared<LayerNorm>(config, axes, dtype));
  }
}

std::vector<parallel::Unit> Gpt2::units() const {
  std::vector<parallel::Unit> units;
  if (wte_) {
    // Neither the embeddings' nor the fused head's backward reads the weights.
    units.push_back(
        {"embeddings", {wte_->weight_VD, wpe_->weight_TD}, /*weights_in_backward=*/false});
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    units.push_back({concat("h.", i), blocks_[i]->parameters()});
  }
  if (ln_f_) units.push_back({"ln_f", ln_f_->parameters()});
  return units;
}

at::Tensor Gpt2::forward(const at::Tensor& input, const TokenBatch& batch) {
  size_t unit = 0;
  at::Tensor x = input;
  if (wte_) {
    x = run_unit(unit++, x, [&](const at::Tensor& tokens) {
      return dropout_.forward(wpe_->forward(wte_->forward(tokens), batch), batch);
    });
  }
  for (const auto& block : blocks_) {
    x = run_unit(unit++, x, [&](const at::Tensor& in) { return block->forward(in, batch); });
  }
  if (!ln_f_) return x;
  return run_unit(unit, x, [this](const at::Tensor& in) { return ln_f_->forward(in); });
}

ModelPlan gpt2_plan(const ModelConfig& config, int tensor_ranks) {
  ModelPlan plan(config, tensor_ranks);
  const TensorCuts& cuts = plan.cuts();
  const int64_t D = config.width, F = config.ffn_width, H = config.head_width();
  const auto add_norm = [&](const std::string& name) {
    plan.add_whole(name + ".weight", {D});
    plan.add_whole(name + ".bias", {D});
  };
  plan.add_split("transformer.wte.weight", {config.vocab_size, D}, 0, cuts.vocab);
  plan.add_whole("transformer.wpe.weight", {config.sequence_length, D});
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string block = concat("transformer.h.", layer, ".");
    add_norm(block + "ln_1");
    for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
      const auto& heads = name[0] == 'q' ? cuts.heads : cuts.kv_heads;
      plan.add_split(concat(block, "attn.", name, ".weight"), {D, D}, 0, heads, H);
      plan.add_split(concat(block, "attn.", name, ".bias"), {D}, 0, heads, H);
    }
    plan.add_split(block + "attn.c_proj.weight", {D, D}, 1, cuts.heads, H);
    plan.add_whole(block + "attn.c_proj.bias", {D});
    add_norm(block + "ln_2");
    plan.add_split(block + "mlp.c_fc.weight", {F, D}, 0, cuts.ffn);
    plan.add_split(block + "mlp.c_fc.bias", {F}, 0, cuts.ffn);
    plan.add_split(block + "mlp.c_proj.weight", {D, F}, 1, cuts.ffn);
    plan.add_whole(block + "mlp.c_proj.bias", {D});
  }
  add_norm("transformer.ln_f");
  return plan;
}

}  // namespace trireme::model
