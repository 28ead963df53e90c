#include "trireme/model/llama/llama_form.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::model::inline internal {
namespace {

using Keys = std::vector<std::pair<std::string, HuggingFaceValue>>;

// A class of transformers and what a model must be for it.
struct Kind {
  const char* name;          // for people
  const char* type;          // model_type
  const char* architecture;  // the class
};
constexpr Kind kLlama{"Llama", "llama", "LlamaForCausalLM"};
constexpr Kind kQwen3{"Qwen3", "qwen3", "Qwen3ForCausalLM"};
constexpr Kind kMixtral{"Mixtral", "mixtral", "MixtralForCausalLM"};
constexpr Kind kQwen3Moe{"Qwen3-MoE", "qwen3_moe", "Qwen3MoeForCausalLM"};
constexpr Kind kDeepSeek{"DeepSeek-V3", "deepseek_v3", "DeepseekV3ForCausalLM"};

const Kind& kind_of(const ModelConfig& config) {
  if (config.attention.is_latent()) return kDeepSeek;
  if (config.sparse.experts == 0) return config.attention.qk_norm ? kQwen3 : kLlama;
  return config.attention.qk_norm ? kQwen3Moe : kMixtral;
}

void check_experts_of(const Kind& kind, const ModelConfig& config) {
  const ExpertConfig& sparse = config.sparse;
  const auto check = [&](bool is_same, const char* key) {
    TRIREME_CHECK(is_same, "transformers has no class with these experts: its ", kind.name,
                  " has another model.", key,
                  "; the checkpoint goes on here, and has no form there");
  };
  const bool is_deepseek = &kind == &kDeepSeek, is_mixtral = &kind == &kMixtral;
  check(sparse.experts > 0 || !is_deepseek, "experts");
  check((sparse.shared_experts > 0) == is_deepseek, "shared_experts");
  check(sparse.dense_layers == 0 || !is_mixtral, "dense_layers");
  check(sparse.expert_interval == 1 || &kind == &kQwen3Moe, "expert_interval");
  check(sparse.router_score == (is_deepseek ? RouterScore::kSigmoid : RouterScore::kSoftmax),
        "router_score");
  check(sparse.router_normalise || !is_mixtral, "router_normalise");
  check(sparse.router_scale == 1 || is_deepseek, "router_scale");
  check(sparse.expert_groups == 1 || is_deepseek, "expert_groups");
  check(sparse.router_bias_rate == 0 || is_deepseek, "router_bias_rate");
}

Keys keys_of_mixtral(const ExpertConfig& sparse) {
  return {{"num_local_experts", sparse.experts},
          {"num_experts_per_tok", sparse.experts_per_token},
          {"router_aux_loss_coef", sparse.balance_loss},
          {"router_jitter_noise", 0.0},
          {"output_router_logits", false},
          {"sliding_window", nullptr}};
}

Keys keys_of_qwen3_moe(const ModelConfig& config) {
  const ExpertConfig& sparse = config.sparse;
  std::vector<int64_t> dense;
  for (int64_t layer = 0; layer < sparse.dense_layers; ++layer) dense.push_back(layer);
  return {{"num_experts", sparse.experts},
          {"num_experts_per_tok", sparse.experts_per_token},
          {"moe_intermediate_size", config.expert_width()},
          {"norm_topk_prob", sparse.router_normalise},
          {"decoder_sparse_step", sparse.expert_interval},
          {"mlp_only_layers", dense},
          {"router_aux_loss_coef", sparse.balance_loss},
          {"output_router_logits", false},
          {"use_sliding_window", false}};
}

Keys keys_of_deepseek(const ModelConfig& config) {
  const ExpertConfig& sparse = config.sparse;
  const AttentionConfig& latent = config.attention;
  HuggingFaceValue q_rank = nullptr;
  if (latent.q_lora_rank > 0) q_rank = latent.q_lora_rank;
  return {{"n_routed_experts", sparse.experts},
          {"n_shared_experts", sparse.shared_experts},
          {"num_experts_per_tok", sparse.experts_per_token},
          {"moe_intermediate_size", config.expert_width()},
          {"first_k_dense_replace", sparse.dense_layers},
          {"n_group", sparse.expert_groups},
          {"topk_group", sparse.groups_per_token},
          {"norm_topk_prob", sparse.router_normalise},
          {"routed_scaling_factor", sparse.router_scale},
          {"kv_lora_rank", latent.kv_lora_rank},
          {"q_lora_rank", q_rank},
          {"qk_nope_head_dim", latent.qk_nope_width},
          {"qk_rope_head_dim", latent.qk_rope_width},
          {"v_head_dim", latent.v_head_width},
          // Pairs are halves apart, as in all families here.
          {"rope_interleave", false}};
}

// Mixtral's files have a name of their own for each projection.
std::string mixtral_projection(const std::string& name) {
  if (name.ends_with("gate_proj")) return "w1";
  return name.ends_with("down_proj") ? "w2" : "w3";
}

// A tensor for each expert of a parameter of all.
void add_experts(HuggingFaceForm& form, const Kind& kind, const ParameterPlan& parameter) {
  const size_t experts = parameter.name.find(".experts.");
  const std::string block = parameter.name.substr(0, parameter.name.find(".mlp."));
  const bool is_mixtral = &kind == &kMixtral;
  const std::string projection = is_mixtral
                                     ? mixtral_projection(parameter.name)
                                     : parameter.name.substr(experts + sizeof(".experts.") - 1);
  HuggingFaceTensor tensor = own_tensor(parameter);
  const int64_t num_experts = tensor.shape[0];
  tensor.shape.erase(tensor.shape.begin());
  for (int64_t e = 0; e < num_experts; ++e) {
    tensor.name = concat(block, is_mixtral ? ".block_sparse_moe" : ".mlp", ".experts.", e, ".",
                         projection, ".weight");
    tensor.slice = e;
    form.tensors.push_back(tensor);
  }
}

void add_tensors(HuggingFaceForm& form, const Kind& kind, const ModelPlan& plan) {
  for (const ParameterPlan& parameter : plan.parameters()) {
    const std::string& name = parameter.name;
    if (name.find(".mlp.experts.") != name.npos) {
      add_experts(form, kind, parameter);
      continue;
    }
    form.tensors.push_back(own_tensor(parameter));
    const bool is_router = name.ends_with(".mlp.gate.weight");
    if (!is_router) continue;
    if (&kind == &kMixtral) {
      form.tensors.back().name =
          name.substr(0, name.find(".mlp.")) + ".block_sparse_moe.gate.weight";
    }
    if (plan.config().sparse.router_bias_rate == 0) continue;
    const std::string bias =
        name.substr(0, name.size() - sizeof("weight") + 1) + "e_score_correction_bias";
    form.tensors.push_back({bias, {plan.config().sparse.experts}, {bias}});
  }
}

}  // namespace

HuggingFaceForm llama_form(const ModelPlan& plan) {
  const ModelConfig& config = plan.config();
  const Kind& kind = kind_of(config);
  if (config.sparse.experts > 0 || &kind == &kDeepSeek) check_experts_of(kind, config);
  HuggingFaceForm form{.architecture = kind.architecture,
                       .config = {{"model_type", std::string(kind.type)},
                                  {"vocab_size", config.vocab_size},
                                  {"hidden_size", config.width},
                                  {"intermediate_size",
                                   &kind == &kMixtral ? config.expert_width() : config.ffn_width},
                                  {"num_hidden_layers", config.layers},
                                  {"num_attention_heads", config.heads},
                                  {"num_key_value_heads", config.kv_heads},
                                  {"hidden_act", std::string("silu")},
                                  {"max_position_embeddings", config.sequence_length},
                                  {"rms_norm_eps", config.norm_epsilon},
                                  {"rope_theta", config.rope_base},
                                  {"rope_scaling", nullptr},
                                  {"attention_bias", false},
                                  {"attention_dropout", 0.0},
                                  {"mlp_bias", false}},
                       .tensors = {}};
  // DeepSeek's heads have widths of their own.
  if (&kind != &kDeepSeek) form.config.emplace_back("head_dim", config.head_width());
  Keys more;
  if (&kind == &kMixtral) more = keys_of_mixtral(config.sparse);
  if (&kind == &kQwen3Moe) more = keys_of_qwen3_moe(config);
  if (&kind == &kDeepSeek) more = keys_of_deepseek(config);
  std::ranges::move(more, std::back_inserter(form.config));
  add_tensors(form, kind, plan);
  return form;
}

}  // namespace trireme::model::inline internal
