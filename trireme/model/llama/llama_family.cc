#include <string>

#include <c10/core/ScalarType.h>

#include "trireme/base/error.h"
#include "trireme/model/llama/llama.h"

namespace trireme::model::inline internal {
namespace {

class LlamaFamily : public Family {
 public:
  void check(const ModelConfig& config) const override {
    TRIREME_CHECK(config.head_width() % 2 == 0, "model.heads = ", config.heads,
                  " makes heads of odd width ", config.head_width(),
                  "; expected an even model.width / model.heads (rotary positions turn pairs): "
                  "change one of them");
    TRIREME_CHECK(config.rope_base > 1, "model.rope_base = ", config.rope_base,
                  "; expected more than 1, such as 10000");
  }

  bool has_tied_head(const ModelConfig& config) const override { return config.tied_embedding; }

  ModelPlan plan(const ModelConfig& config, int tensor_ranks) const override {
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

  std::shared_ptr<Network> make_network(const ModelConfig& config, const ModelAxes& axes,
                                        const ModelPart& part,
                                        at::ScalarType dtype) const override {
    return std::make_shared<Llama>(config, axes, part, dtype);
  }

  double matmul_parameters(const ModelConfig& config) const override {
    const double D = static_cast<double>(config.width);
    const double F = static_cast<double>(config.ffn_width);
    const double G = static_cast<double>(config.kv_heads * config.head_width());
    return (2 * D * D + 2 * D * G) + 3 * D * F;
  }

  // Below fp32, RmsNorm and SwiGLU are composed of libtorch operators.
  KeptByBlock kept_by_block(at::ScalarType dtype) const override {
    const bool composed = c10::elementSize(dtype) < 4;
    // gate, up and silu(gate) * up. The composed SwiGLU keeps silu(gate) too.
    return {.composes_norms = composed, .feed_forward = composed ? 4 : 3};
  }

  HuggingFaceForm hugging_face_form(const ModelPlan& plan) const override {
    const ModelConfig& config = plan.config();
    HuggingFaceForm form{.architecture = "LlamaForCausalLM",
                         .config = {{"model_type", "llama"},
                                    {"vocab_size", config.vocab_size},
                                    {"hidden_size", config.width},
                                    {"intermediate_size", config.ffn_width},
                                    {"num_hidden_layers", config.layers},
                                    {"num_attention_heads", config.heads},
                                    {"num_key_value_heads", config.kv_heads},
                                    {"head_dim", config.head_width()},
                                    {"hidden_act", "silu"},
                                    {"max_position_embeddings", config.sequence_length},
                                    {"rms_norm_eps", config.norm_epsilon},
                                    {"rope_theta", config.rope_base},
                                    {"rope_scaling", nullptr},
                                    {"attention_bias", false},
                                    {"attention_dropout", 0.0},
                                    {"mlp_bias", false}},
                         .tensors = {}};
    for (const ParameterPlan& parameter : plan.parameters()) {
      form.tensors.push_back(own_tensor(parameter));
    }
    return form;
  }
};

}  // namespace

const Family& llama_family() {
  static const LlamaFamily family;
  return family;
}

}  // namespace trireme::model::inline internal
