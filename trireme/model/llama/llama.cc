#include "trireme/model/llama/llama.h"

#include <span>
#include <string>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/ScalarType.h>

#include "trireme/base/error.h"
#include "trireme/model/family/branch_plan.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/latent_attention.h"
#include "trireme/model/llama/llama_form.h"

namespace trireme::model {
namespace {

std::shared_ptr<AttentionBranch> make_attention(const ModelConfig& config, const ModelAxes& axes,
                                                at::ScalarType dtype, int64_t layer) {
  if (config.attention.is_latent()) return std::make_shared<LatentAttention>(config, axes, dtype);
  return std::make_shared<Attention>(config, axes, dtype,
                                     AttentionOptions{.rotary = config.rope.turns(layer),
                                                      .window = config.attention.window_of(layer)});
}

// The names of a block's norms. Null: there is none at that place. Behind attention, the name of
// transformers' classes with a norm there.
struct BlockNorms {
  explicit BlockNorms(BranchNorms places) {
    if (places != BranchNorms::kAfter) before_attention = "input_layernorm";
    if (places == BranchNorms::kBefore) {
      before_feed_forward = "post_attention_layernorm";
      return;
    }
    after_attention = "post_attention_layernorm";
    if (places == BranchNorms::kBoth) before_feed_forward = "pre_feedforward_layernorm";
    after_feed_forward = "post_feedforward_layernorm";
  }
  const char* before_attention = nullptr;
  const char* after_attention = nullptr;
  const char* before_feed_forward = nullptr;
  const char* after_feed_forward = nullptr;
};

void add_latent_attention(ModelPlan& plan, const std::string& attention) {
  const AttentionConfig& latent = plan.config().attention;
  const std::vector<int64_t>& cuts = plan.cuts().heads;
  const int64_t N = plan.config().heads, D = plan.config().width;
  const int64_t Q = latent.qk_width(), V = latent.v_head_width;
  const int64_t q_rank = latent.q_lora_rank, kv_rank = latent.kv_lora_rank;
  if (q_rank == 0) {
    plan.add_split(attention + "q_proj.weight", {N * Q, D}, 0, cuts, Q);
  } else {
    plan.add_whole(attention + "q_a_proj.weight", {q_rank, D});
    plan.add_whole(attention + "q_a_layernorm.weight", {q_rank});
    plan.add_split(attention + "q_b_proj.weight", {N * Q, q_rank}, 0, cuts, Q);
  }
  plan.add_whole(attention + "kv_a_proj_with_mqa.weight", {kv_rank + latent.qk_rope_width, D});
  plan.add_whole(attention + "kv_a_layernorm.weight", {kv_rank});
  const int64_t kv_width = latent.qk_nope_width + V;
  plan.add_split(attention + "kv_b_proj.weight", {N * kv_width, kv_rank}, 0, cuts, kv_width);
  plan.add_split(attention + "o_proj.weight", {D, N * V}, 1, cuts, V);
}

// The matrices' elements.
double attention_parameters(const ModelConfig& config) {
  const auto number = [](int64_t n) { return static_cast<double>(n); };
  const double D = number(config.width);
  const AttentionConfig& latent = config.attention;
  if (!latent.is_latent()) {
    return 2 * D * number((config.heads + config.kv_heads) * config.head_width());
  }
  const double N = number(config.heads), q_rank = number(latent.q_lora_rank),
               kv_rank = number(latent.kv_lora_rank), Q = N * number(latent.qk_width()),
               V = N * number(latent.v_head_width);
  const double queries = q_rank == 0 ? D * Q : q_rank * (D + Q);
  return queries + D * (kv_rank + number(latent.qk_rope_width)) +
         kv_rank * (N * number(latent.qk_nope_width) + V) + D * V;
}

void add_experts(ModelPlan& plan, const std::string& mlp) {
  const ModelConfig& config = plan.config();
  const int64_t E = config.sparse.experts, D = config.width, F = config.expert_width();
  const bool has_biases = config.sparse.expert_bias;
  plan.add_whole(mlp + "gate.weight", {E, D});
  if (has_biases) plan.add_whole(mlp + "gate.bias", {E});
  plan.add_experts(mlp + "experts.gate_proj", {E, F, D}, 1, plan.cuts().expert);
  plan.add_experts(mlp + "experts.up_proj", {E, F, D}, 1, plan.cuts().expert);
  plan.add_experts(mlp + "experts.down_proj", {E, D, F}, 2, plan.cuts().expert);
  if (has_biases) {
    plan.add_experts(mlp + "experts.gate_proj_bias", {E, F}, 1, plan.cuts().expert);
    plan.add_experts(mlp + "experts.up_proj_bias", {E, F}, 1, plan.cuts().expert);
    plan.add_experts(mlp + "experts.down_proj_bias", {E, D}, 1, {});
  }
  if (config.sparse.shared_experts > 0)
    add_gated_feed_forward(plan, mlp + "shared_experts.", config.shared_width(),
                           plan.cuts().shared);
  if (config.sparse.shared_gate) plan.add_whole(mlp + "shared_expert_gate.weight", {1, D});
}

class LlamaFamily : public Family {
 public:
  void check(const ModelConfig& config) const override {
    check_attention(config);
    check_experts(config);
    TRIREME_CHECK(!config.separate_head, "model.separate_head is true and model.family \"",
                  config.family,
                  "\", whose head is separate unless model.tied_embedding is true; leave it out");
    check_rope(config);
    check_vision(config);
  }

  bool has_tied_head(const ModelConfig& config) const override { return config.tied_embedding; }
  bool reads_images() const override { return true; }

  ModelPlan plan(const ModelConfig& config, AxisSizes sizes) const override {
    ModelPlan plan(config, sizes);
    const TensorCuts& cuts = plan.cuts();
    const int64_t D = config.width, F = config.ffn_width, V = config.vocab_size;
    plan.add_split("model.embed_tokens.weight", {V, D}, 0, cuts.vocab);
    if (config.vision.is_on()) add_image_input(plan, "model.");
    const BlockNorms norms(config.branch_norms);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = concat("model.layers.", layer, ".");
      const auto add_norm = [&](const char* name) {
        if (name != nullptr) plan.add_whole(concat(block, name, ".weight"), {D});
      };
      add_norm(norms.before_attention);
      if (config.attention.is_latent()) {
        add_latent_attention(plan, block + "self_attn.");
      } else {
        add_attention(plan, block + "self_attn.");
      }
      add_norm(norms.after_attention);
      add_norm(norms.before_feed_forward);
      if (config.sparse.is_sparse(layer)) {
        add_experts(plan, block + "mlp.");
      } else {
        add_gated_feed_forward(plan, block + "mlp.", F, cuts.ffn);
      }
      add_norm(norms.after_feed_forward);
    }
    plan.add_whole("model.norm.weight", {D});
    if (!config.tied_embedding) plan.add_split("lm_head.weight", {V, D}, 0, cuts.vocab);
    return plan;
  }

  std::shared_ptr<Network> make_network(const ModelConfig& config, const ModelAxes& axes,
                                        const ModelPart& part,
                                        at::ScalarType dtype) const override {
    return std::make_shared<Llama>(config, axes, part, dtype);
  }

  double matmul_parameters(const ModelConfig& config, bool sparse) const override {
    const double D = static_cast<double>(config.width);
    const double attention = attention_parameters(config);
    if (!sparse) return attention + 3 * D * static_cast<double>(config.ffn_width);
    const auto used = static_cast<double>(config.sparse.experts_per_token * config.expert_width());
    const auto router =
        static_cast<double>(config.sparse.experts + (config.sparse.shared_gate ? 1 : 0));
    return attention + D * router + 3 * D * (used + static_cast<double>(config.shared_width()));
  }

  double flops_per_sequence(const ModelConfig& config) const override {
    const double of_text = Family::flops_per_sequence(config);
    if (!config.vision.is_on()) return of_text;
    return of_text + config.vision.images_per_sequence * flops_of_image(config);
  }

  KeptByBlock kept_by_block(const ModelConfig& config) const override {
    // What scales or norms a branch's output adds it to the residual stream behind what is
    // recomputed.
    const bool adds_itself =
        config.residual_scale == 1 && config.branch_norms == BranchNorms::kBefore;
    // gate, up and silu(gate) * up.
    return {.norms = config.branch_norms == BranchNorms::kBoth ? 4 : 2,
            .branch_inputs = adds_itself ? 2 : 1,
            .feed_forward = 3};
  }

  std::span<const HuggingFaceKind* const> hugging_face_kinds() const override {
    return llama_kinds();
  }

  HuggingFaceForm hugging_face_form(const ModelPlan& plan) const override {
    return llama_form(plan);
  }

  std::vector<HuggingFaceTensor> joined_tensors(const ModelPlan& plan) const override {
    return llama_joined_tensors(plan);
  }

  std::vector<HuggingFaceTensor> torchtitan_tensors(const ModelPlan& plan) const override {
    return llama_torchtitan_tensors(plan);
  }
};

class MixtralFamily : public LlamaFamily {
 public:
  void check(const ModelConfig& config) const override {
    TRIREME_CHECK(
        config.sparse.experts > 0,
        "model.family is \"mixtral\" and model.experts 0; expected at least 1, such as 8: "
        "set it, or model.family to \"llama\"");
    LlamaFamily::check(config);
  }

  std::span<const HuggingFaceKind* const> hugging_face_kinds() const override {
    return mixtral_kinds();
  }
};

}  // namespace

LlamaBlock::LlamaBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype,
                       int64_t layer)
    : TransformerBlock(config, layer) {
  const BlockNorms names(config.branch_norms);
  const auto norm = [&](const char* name) -> std::shared_ptr<RmsNorm> {
    if (name == nullptr) return nullptr;
    return register_module(name, std::make_shared<RmsNorm>(config, axes, dtype));
  };
  attention_form_.before = norm(names.before_attention);
  self_attn_ = register_attention("self_attn", make_attention(config, axes, dtype, layer));
  attention_form_.after = norm(names.after_attention);
  feed_forward_form_.before = norm(names.before_feed_forward);
  if (config.sparse.is_sparse(layer)) {
    experts_ = register_feed_forward(
        "mlp", std::make_shared<ExpertFeedForward>(config, axes, dtype, layer));
  } else {
    const int64_t rows = TensorCuts(config, axes.tensor.size()).ffn_of(axes.tensor.rank()).size;
    mlp_ = register_feed_forward("mlp",
                                 std::make_shared<FeedForward>(config.width, rows, axes, dtype));
  }
  feed_forward_form_.after = norm(names.after_feed_forward);
  attention_form_.scale = feed_forward_form_.scale = config.residual_scale;
  if (config.branch_norms == BranchNorms::kBefore) return;
  // A norm would undo the scale of what is dropped before it.
  attention_form_.dropout = std::exchange(self_attn_->dropout, {});
  feed_forward_form_.dropout =
      experts_ ? experts_->take_dropout() : std::exchange(mlp_->dropout, {});
}

at::Tensor LlamaBlock::compute(const at::Tensor& x, const TokenBatch& batch) {
  const at::Tensor y = add_attention(attention_form_, *self_attn_, x, batch);
  return experts_ ? add_feed_forward(feed_forward_form_, *experts_, y, batch)
                  : add_feed_forward(feed_forward_form_, *mlp_, y, batch);
}

Llama::Llama(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
             at::ScalarType dtype)
    : RotaryDecoder(
          config, part, dtype,
          {.embedding_scale = config.embedding_scale, .logits_divisor = config.logits_divisor}),
      axis_(axes.tensor) {
  add_layers<LlamaBlock>(config, axes, part, dtype, [&](torch::nn::Module& model) {
    if (!config.vision.is_on()) return;
    images_ = std::make_unique<ImageInput>(model, config, axes, dtype);
    for (parallel::Unit& unit : images_->units()) {
      image_units_.push_back(add_unit(std::move(unit.name), std::move(unit.parameters), true));
    }
  });
}

void Llama::set_recompute(const RecomputePlan& plan) {
  RotaryDecoder::set_recompute(plan);
  if (images_) images_->set_recompute(plan);
}

at::Tensor Llama::insert(const at::Tensor& x, const TokenBatch& batch) {
  if (!images_) return x;
  const at::Tensor features =
      parallel::weight_of_rows(images_->features(batch.images, run_unit, image_units_), axis_);
  at::Tensor rows_S = batch.image_rows_BT.flatten();
  if (axis_.sequence) {
    const mesh::Range own = axis_.own_rows(rows_S.numel());
    rows_S = rows_S.narrow(0, own.offset, own.size);
  }
  const at::Tensor places = rows_S.ge(0).nonzero().squeeze(1);
  const at::Tensor taken = features.index_select(0, rows_S.index_select(0, places));
  return x.reshape({rows_S.numel(), x.size(-1)}).index_copy(0, places, taken).view(x.sizes());
}

const Family& llama_family() {
  static const LlamaFamily family;
  return family;
}

const Family& mixtral_family() {
  static const MixtralFamily family;
  return family;
}

}  // namespace trireme::model
