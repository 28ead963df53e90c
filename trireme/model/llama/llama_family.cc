#include <string>

#include <c10/core/ScalarType.h>

#include "trireme/base/error.h"
#include "trireme/model/llama/llama.h"

namespace trireme::model::inline internal {
namespace {

// A SwiGLU of width F.
void add_swiglu(ModelPlan& plan, const std::string& mlp, int64_t F,
                const std::vector<int64_t>& cuts) {
  const int64_t D = plan.config().width;
  plan.add_split(mlp + "gate_proj.weight", {F, D}, 0, cuts);
  plan.add_split(mlp + "up_proj.weight", {F, D}, 0, cuts);
  plan.add_split(mlp + "down_proj.weight", {D, F}, 1, cuts);
}

void add_experts(ModelPlan& plan, const std::string& mlp) {
  const ModelConfig& config = plan.config();
  const int64_t E = config.sparse.experts, D = config.width, F = config.expert_width();
  plan.add_whole(mlp + "gate.weight", {E, D});
  plan.add_experts(mlp + "experts.gate_proj", {E, F, D}, 1, plan.cuts().expert);
  plan.add_experts(mlp + "experts.up_proj", {E, F, D}, 1, plan.cuts().expert);
  plan.add_experts(mlp + "experts.down_proj", {E, D, F}, 2, plan.cuts().expert);
  if (config.sparse.shared_experts > 0)
    add_swiglu(plan, mlp + "shared_experts.", config.shared_width(), plan.cuts().shared);
}

// Throws: ConfigError unless transformers' Mixtral computes the same as this sparse model
void check_is_mixtral(const ModelConfig& config) {
  const ExpertConfig& sparse = config.sparse;
  const auto check = [](bool is_same, const char* key) {
    TRIREME_CHECK(is_same,
                  "transformers has no Llama with these experts: its Mixtral has another model.",
                  key, "; the checkpoint goes on here, and has no form there");
  };
  check(sparse.shared_experts == 0, "shared_experts");
  check(sparse.dense_layers == 0, "dense_layers");
  check(sparse.expert_interval == 1, "expert_interval");
  check(sparse.router_score == RouterScore::kSoftmax, "router_score");
  check(sparse.router_normalise, "router_normalise");
  check(sparse.router_scale == 1, "router_scale");
  check(sparse.expert_groups == 1, "expert_groups");
  check(sparse.router_bias_rate == 0, "router_bias_rate");
}

// Mixtral's files have a tensor for each expert and projection.
void add_mixtral(HuggingFaceForm& form, const ParameterPlan& parameter) {
  const std::string& name = parameter.name;
  const size_t mlp = name.find(".mlp.");
  if (mlp == name.npos) return form.tensors.push_back(own_tensor(parameter));
  const std::string block = name.substr(0, mlp) + ".block_sparse_moe.";
  HuggingFaceTensor tensor = own_tensor(parameter);
  if (name.ends_with(".gate.weight")) {
    tensor.name = block + "gate.weight";
    return form.tensors.push_back(tensor);
  }
  const char* const projection = name.ends_with("gate_proj")   ? "w1"
                                 : name.ends_with("down_proj") ? "w2"
                                                               : "w3";
  const int64_t num_experts = tensor.shape[0];
  tensor.shape.erase(tensor.shape.begin());
  for (int64_t e = 0; e < num_experts; ++e) {
    tensor.name = concat(block, "experts.", e, ".", projection, ".weight");
    tensor.slice = e;
    form.tensors.push_back(tensor);
  }
}

class LlamaFamily : public Family {
 public:
  void check(const ModelConfig& config) const override {
    TRIREME_CHECK(config.head_width() % 2 == 0, "model.heads = ", config.heads,
                  " makes heads of odd width ", config.head_width(),
                  "; expected an even model.width / model.heads (rotary positions turn pairs): "
                  "change one of them");
    check_experts(config);
    TRIREME_CHECK(config.rope_base > 1, "model.rope_base = ", config.rope_base,
                  "; expected more than 1, such as 10000");
  }

  bool has_tied_head(const ModelConfig& config) const override { return config.tied_embedding; }

  ModelPlan plan(const ModelConfig& config, AxisSizes sizes) const override {
    ModelPlan plan(config, sizes);
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
      if (config.sparse.is_sparse(layer)) {
        add_experts(plan, block + "mlp.");
      } else {
        add_swiglu(plan, block + "mlp.", F, cuts.ffn);
      }
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
    const double G = static_cast<double>(config.kv_heads * config.head_width());
    const double attention = 2 * D * D + 2 * D * G;
    if (!sparse) return attention + 3 * D * static_cast<double>(config.ffn_width);
    const auto used = static_cast<double>(config.sparse.experts_per_token * config.expert_width());
    const auto router = static_cast<double>(config.sparse.experts);
    return attention + D * router + 3 * D * (used + static_cast<double>(config.shared_width()));
  }

  // Below fp32, RmsNorm and SwiGLU are composed of libtorch operators.
  KeptByBlock kept_by_block(at::ScalarType dtype) const override {
    const bool composed = c10::elementSize(dtype) < 4;
    // gate, up and silu(gate) * up. The composed SwiGLU keeps silu(gate) too.
    return {.composes_norms = composed, .feed_forward = composed ? 4 : 3};
  }

  HuggingFaceForm hugging_face_form(const ModelPlan& plan) const override {
    const ModelConfig& config = plan.config();
    if (config.sparse.experts > 0) check_is_mixtral(config);
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
    if (config.sparse.experts == 0) {
      for (const ParameterPlan& parameter : plan.parameters()) {
        form.tensors.push_back(own_tensor(parameter));
      }
      return form;
    }
    form.architecture = "MixtralForCausalLM";
    form.config[0].second = std::string("mixtral");
    form.config[3].second = config.expert_width();
    form.config.insert(form.config.end(), {{"num_local_experts", config.sparse.experts},
                                           {"num_experts_per_tok", config.sparse.experts_per_token},
                                           {"router_aux_loss_coef", config.sparse.balance_loss},
                                           {"router_jitter_noise", 0.0},
                                           {"output_router_logits", false},
                                           {"sliding_window", nullptr}});
    for (const ParameterPlan& parameter : plan.parameters()) add_mixtral(form, parameter);
    return form;
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
};

}  // namespace

const Family& llama_family() {
  static const LlamaFamily family;
  return family;
}

const Family& mixtral_family() {
  static const MixtralFamily family;
  return family;
}

}  // namespace trireme::model::inline internal
