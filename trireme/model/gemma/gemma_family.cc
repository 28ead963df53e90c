#include <string>

#include "trireme/base/error.h"
#include "trireme/model/family/branch_plan.h"
#include "trireme/model/gemma/gemma.h"
#include "trireme/model/gemma/gemma_form.h"

namespace trireme::model {
namespace {

class GemmaFamily : public Family {
 public:
  void check(const ModelConfig& config) const override {
    check_attention(config);
    check_experts(config);
    check_unscaled(config);
    TRIREME_CHECK(config.sparse.experts == 0, "model.experts = ", config.sparse.experts,
                  "; expected 0 (gemma has no sparse blocks): set it to 0, or model.family to "
                  "\"mixtral\"");
    TRIREME_CHECK(!config.attention.is_latent(), "model.kv_lora_rank is ",
                  config.attention.kv_lora_rank,
                  "; expected 0 (gemma has no latent attention): set it to 0, or model.family to "
                  "\"llama\"");
    TRIREME_CHECK(!config.separate_head,
                  "model.separate_head is true and model.family \"gemma\", whose head is separate "
                  "unless model.tied_embedding is true; leave it out");
    check_rope(config);
  }

  bool has_tied_head(const ModelConfig& config) const override { return config.tied_embedding; }

  ModelPlan plan(const ModelConfig& config, AxisSizes sizes) const override {
    ModelPlan plan(config, sizes);
    const TensorCuts& cuts = plan.cuts();
    const int64_t D = config.width, F = config.ffn_width, V = config.vocab_size;
    plan.add_split("model.embed_tokens.weight", {V, D}, 0, cuts.vocab);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = concat("model.layers.", layer, ".");
      plan.add_whole(block + "input_layernorm.weight", {D});
      add_attention(plan, block + "self_attn.");
      plan.add_whole(block + "post_attention_layernorm.weight", {D});
      plan.add_whole(block + "pre_feedforward_layernorm.weight", {D});
      add_gated_feed_forward(plan, block + "mlp.", F, cuts.ffn);
      plan.add_whole(block + "post_feedforward_layernorm.weight", {D});
    }
    plan.add_whole("model.norm.weight", {D});
    if (!config.tied_embedding) plan.add_split("lm_head.weight", {V, D}, 0, cuts.vocab);
    return plan;
  }

  // A norm's weight is stored less one.
  Initialiser initialiser_of(const ModelConfig& config, std::string_view name) const override {
    const Initialiser rule = default_initialiser(config, name);
    return rule.value == 1 ? Initialiser{} : rule;
  }

  std::shared_ptr<Network> make_network(const ModelConfig& config, const ModelAxes& axes,
                                        const ModelPart& part,
                                        at::ScalarType dtype) const override {
    return std::make_shared<Gemma>(config, axes, part, dtype);
  }

  double matmul_parameters(const ModelConfig& config, bool /*sparse*/) const override {
    const auto heads = static_cast<double>(config.heads + config.kv_heads);
    const auto H = static_cast<double>(config.head_width());
    return static_cast<double>(config.width) *
           (2 * heads * H + 3 * static_cast<double>(config.ffn_width));
  }

  // gate, up, gelu(gate) and gelu(gate) * up.
  KeptByBlock kept_by_block(const ModelConfig& /*config*/) const override {
    return {.norms = 4, .branch_inputs = 1, .feed_forward = 4, .most_on_gpu = 4};
  }

  std::span<const HuggingFaceKind* const> hugging_face_kinds() const override {
    return gemma_kinds();
  }

  HuggingFaceForm hugging_face_form(const ModelPlan& plan) const override {
    return gemma_form(plan);
  }
};

}  // namespace

const Family& gemma_family() {
  static const GemmaFamily family;
  return family;
}

}  // namespace trireme::model
