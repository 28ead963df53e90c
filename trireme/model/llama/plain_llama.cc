#include "trireme/model/llama/plain_llama.h"

#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.h"
#include "trireme/model/layers/rotary.h"

namespace trireme::model {
namespace internal {

using torch::nn::Embedding;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::ModuleList;

inline Linear linear(int64_t in, int64_t out) { return Linear(LinearOptions(in, out).bias(false)); }

class PlainNorm : public torch::nn::Module {
 public:
  PlainNorm(int64_t width, double epsilon) : epsilon_(epsilon) {
    weight_D = register_parameter("weight", at::ones({width}));
  }
  at::Tensor forward(const at::Tensor& x) {
    return at::rms_norm(x, {weight_D.size(0)}, weight_D, epsilon_);
  }
  at::Tensor weight_D;

 private:
  double epsilon_;
};

inline at::Tensor turned(const at::Tensor& x_BNTH, const RotaryTable& table) {
  const auto half = x_BNTH.chunk(2, -1);
  const at::Tensor cos = table.cos_TH.to(x_BNTH.scalar_type()),
                   sin = table.sin_TH.to(x_BNTH.scalar_type());
  return at::cat({half[0] * cos - half[1] * sin, half[1] * cos + half[0] * sin}, -1);
}

class PlainAttention : public torch::nn::Module {
 public:
  explicit PlainAttention(const ModelConfig& config)
      : heads_(config.heads), kv_heads_(config.kv_heads), width_(config.head_width()) {
    q_proj_ = register_module("q_proj", linear(config.width, heads_ * width_));
    k_proj_ = register_module("k_proj", linear(config.width, kv_heads_ * width_));
    v_proj_ = register_module("v_proj", linear(config.width, kv_heads_ * width_));
    o_proj_ = register_module("o_proj", linear(heads_ * width_, config.width));
  }
  at::Tensor forward(const at::Tensor& x_BTD, const RotaryTable& table) {
    const int64_t B = x_BTD.size(0), T = x_BTD.size(1);
    const auto split = [&](const at::Tensor& x, int64_t heads) {
      return x.view({B, T, heads, width_}).transpose(1, 2);
    };
    const auto for_each_head = [&](const at::Tensor& x_BKTH) {
      return x_BKTH.unsqueeze(2)
          .expand({B, kv_heads_, heads_ / kv_heads_, T, width_})
          .reshape({B, heads_, T, width_});
    };
    const at::Tensor q = turned(split(q_proj_(x_BTD), heads_), table);
    const at::Tensor k = for_each_head(turned(split(k_proj_(x_BTD), kv_heads_), table));
    const at::Tensor v = for_each_head(split(v_proj_(x_BTD), kv_heads_));
    const at::Tensor out = at::scaled_dot_product_attention(q, k, v, {}, 0, /*is_causal=*/true);
    return o_proj_(out.transpose(1, 2).reshape({B, T, heads_ * width_}));
  }

 private:
  int64_t heads_, kv_heads_, width_;
  Linear q_proj_{nullptr}, k_proj_{nullptr}, v_proj_{nullptr}, o_proj_{nullptr};
};

class PlainFeedForward : public torch::nn::Module {
 public:
  explicit PlainFeedForward(const ModelConfig& config) {
    gate_proj_ = register_module("gate_proj", linear(config.width, config.ffn_width));
    up_proj_ = register_module("up_proj", linear(config.width, config.ffn_width));
    down_proj_ = register_module("down_proj", linear(config.ffn_width, config.width));
  }
  at::Tensor forward(const at::Tensor& x) {
    return down_proj_(at::silu(gate_proj_(x)) * up_proj_(x));
  }

 private:
  Linear gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
};

class PlainBlock : public torch::nn::Module {
 public:
  explicit PlainBlock(const ModelConfig& config) {
    const auto norm = [&] {
      return std::make_shared<PlainNorm>(config.width, config.norm_epsilon);
    };
    input_norm_ = register_module("input_layernorm", norm());
    attention_ = register_module("self_attn", std::make_shared<PlainAttention>(config));
    inner_norm_ = register_module("post_attention_layernorm", norm());
    feed_forward_ = register_module("mlp", std::make_shared<PlainFeedForward>(config));
  }
  at::Tensor forward(const at::Tensor& x, const RotaryTable& table) {
    const at::Tensor y = x + attention_->forward(input_norm_->forward(x), table);
    return y + feed_forward_->forward(inner_norm_->forward(y));
  }

 private:
  std::shared_ptr<PlainNorm> input_norm_, inner_norm_;
  std::shared_ptr<PlainAttention> attention_;
  std::shared_ptr<PlainFeedForward> feed_forward_;
};

class PlainBody : public torch::nn::Module {
 public:
  explicit PlainBody(const ModelConfig& config) {
    embed_tokens = register_module("embed_tokens", Embedding(config.vocab_size, config.width));
    ModuleList list = register_module("layers", ModuleList());
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      blocks.push_back(std::make_shared<PlainBlock>(config));
      list->push_back(blocks.back());
    }
    norm = register_module("norm", std::make_shared<PlainNorm>(config.width, config.norm_epsilon));
  }

  Embedding embed_tokens{nullptr};
  std::vector<std::shared_ptr<PlainBlock>> blocks;
  std::shared_ptr<PlainNorm> norm;
};

}  // namespace internal

struct PlainLlama::Layers {
  std::shared_ptr<internal::PlainBody> body;
  torch::nn::Linear head{nullptr};  // null: the embedding's weight
  RotaryTable table;
};

void check_plain_llama(const ModelConfig& config) {
  const auto check = [&](bool holds, const char* key, const auto& value, const char* expected) {
    TRIREME_CHECK(holds, key, " is ", value, "; a Llama of plain torch has ", expected,
                  ": of language models only dense ones of family \"llama\" can be traced");
  };
  check(config.family == "llama", "model.family", config.family, "\"llama\"");
  check(config.vocab_size > 0, "model.vocab_size", config.vocab_size, "a known vocabulary");
  check(config.sparse.experts == 0, "model.experts", config.sparse.experts, "none");
  check(!config.attention.is_latent(), "model.kv_lora_rank", config.attention.kv_lora_rank, "0");
  check(!config.attention.qk_norm, "model.qk_norm", "true", "false");
  check(!config.attention.attention_bias && !config.attention.attention_output_bias,
        "model.attention_bias or attention_output_bias", "true", "false");
  check(config.attention.window == 0, "model.window", config.attention.window, "0");
  check(config.attention.attention_softcap == 0 && !config.attention.attention_sinks &&
            config.attention.query_scalar == 0,
        "model.attention_softcap, attention_sinks or query_scalar", "set", "none");
  check(config.branch_norms == BranchNorms::kBefore, "model.branch_norms", "not \"before\"",
        "norms before branches");
  check(config.embedding_scale == 1 && config.residual_scale == 1 && config.logits_divisor == 1 &&
            config.logits_softcap == 0,
        "a scale or soft cap of the model", "set", "none");
  check(config.rotary_width() == config.head_width(), "the rotary width", config.rotary_width(),
        "that of heads");
  check(config.dropout == 0, "model.dropout", config.dropout, "0");
  check(config.classes == 0, "model.classes", config.classes, "0");
  check(!config.vision.is_on(), "vision.layers", config.vision.layers, "0");
  check(config.lora.rank == 0, "lora.rank", config.lora.rank, "0");
}

PlainLlama::PlainLlama(const ModelConfig& config, at::ScalarType dtype) {
  check_plain_llama(config);
  layers_ = std::make_unique<Layers>(
      Layers{.body = register_module("model", std::make_shared<internal::PlainBody>(config)),
             .table = RotaryTable(config.sequence_length, config.head_width(), config.rope_base,
                                  dtype, config.rope)});
  if (!config.tied_embedding)
    layers_->head = register_module("lm_head", internal::linear(config.width, config.vocab_size));
  to(dtype);
}

PlainLlama::~PlainLlama() = default;

at::Tensor PlainLlama::forward(const at::Tensor& tokens_BT) {
  internal::PlainBody& body = *layers_->body;
  at::Tensor x_BTD = body.embed_tokens(tokens_BT);
  for (const auto& block : body.blocks) x_BTD = block->forward(x_BTD, layers_->table);
  x_BTD = body.norm->forward(x_BTD);
  return layers_->head.is_empty() ? at::linear(x_BTD, body.embed_tokens->weight)
                                  : layers_->head(x_BTD);
}

at::Tensor PlainLlama::loss(const at::Tensor& tokens_BT, const at::Tensor& targets_BT) {
  const at::Tensor logits_BTV = forward(tokens_BT);
  const at::ScalarType wide = at::promote_types(logits_BTV.scalar_type(), at::kFloat);
  return at::cross_entropy_loss(logits_BTV.flatten(0, 1).to(wide), targets_BT.flatten());
}

}  // namespace trireme::model
