// Length: one check for each group of keys that tells the classes apart, and what they name.
#include "trireme/model/llama/llama_form.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

bool has_factors(const ModelConfig& config) {
  return !config.is_unscaled() || config.attention.query_scalar > 0;
}

bool is_olmo(const HuggingFaceKind& kind) { return &kind == &kOlmo2Kind || &kind == &kOlmo3Kind; }

// The class that computes the same, if its experts do.
const HuggingFaceKind& kind_of(const ModelConfig& config) {
  const AttentionConfig& attention = config.attention;
  if (attention.is_latent()) return kDeepSeekKind;
  if (config.sparse.expert_bias || config.sparse.swiglu_limit > 0) return kGptOssKind;
  if (config.sparse.shared_gate) return kQwen2MoeKind;
  if (config.sparse.experts > 0) return attention.qk_norm ? kQwen3MoeKind : kMixtralKind;
  if (config.branch_norms == BranchNorms::kAfter)
    return attention.window > 0 ? kOlmo3Kind : kOlmo2Kind;
  if (config.branch_norms == BranchNorms::kBoth) return kGlm4Kind;
  if (has_factors(config)) return kGraniteKind;
  if (config.rope.rotary_share != 1) return kPhi3Kind;
  if (config.rope.rope_layers != "r") return kSmolLm3Kind;
  if (attention.attention_bias && !attention.attention_output_bias) return kQwen2Kind;
  if (attention.qk_norm) return kQwen3Kind;
  return attention.window > 0 ? kMistralKind : kLlamaKind;
}

void check_attention_of(const HuggingFaceKind& kind, const ModelConfig& config) {
  const AttentionConfig& attention = config.attention;
  const bool has_none = !attention.attention_bias && !attention.attention_output_bias;
  const bool may_have_all = &kind == &kLlamaKind || &kind == &kSmolLm3Kind ||
                            &kind == &kGraniteKind || is_olmo(kind) || &kind == &kGptOssKind;
  const bool may_have_qkv = &kind == &kQwen2Kind || &kind == &kQwen2MoeKind || &kind == &kGlm4Kind;
  const char* const known = may_have_all   ? "either none or those of all four projections"
                            : may_have_qkv ? "either none or those of queries, keys and values"
                                           : "none";
  TRIREME_CHECK(has_none || (attention.attention_bias &&
                             (attention.attention_output_bias ? may_have_all : may_have_qkv)),
                "transformers has no class with these biases: its ", kind.name, " has ", known,
                ", and model.attention_bias is ", attention.attention_bias,
                " and model.attention_output_bias ", attention.attention_output_bias,
                "; the checkpoint goes on here, and has no form there");
  TRIREME_CHECK(has_none || !attention.qk_norm || is_olmo(kind),
                "transformers has no class with both model.attention_bias and model.qk_norm; the "
                "checkpoint goes on here, and has no form there");
  TRIREME_CHECK(!attention.qk_norm ||
                    (&kind != &kSmolLm3Kind && &kind != &kGraniteKind && &kind != &kGptOssKind &&
                     &kind != &kQwen2MoeKind && &kind != &kGlm4Kind),
                "transformers' ", kind.name,
                " has no model.qk_norm; the checkpoint goes on here, and has no form there");
}

void check_norms_of(const HuggingFaceKind& kind, const ModelConfig& config) {
  const BranchNorms known = is_olmo(kind)         ? BranchNorms::kAfter
                            : &kind == &kGlm4Kind ? BranchNorms::kBoth
                                                  : BranchNorms::kBefore;
  TRIREME_CHECK(config.branch_norms == known, "transformers' ", kind.name,
                " has no model.branch_norms \"", name_of(kBranchNorms, config.branch_norms),
                "\"; the checkpoint goes on here, and has no form there");
  TRIREME_CHECK(config.attention.norms_all_heads() == is_olmo(kind), "transformers' ", kind.name,
                is_olmo(kind) ? " norms the queries and keys of all heads together"
                              : " never norms the queries and keys of all heads together",
                ", and model.qk_norm is ", config.attention.qk_norm, " over \"",
                name_of(kQkNormsOver, config.attention.qk_norm_over),
                "\" (model.qk_norm_over); the checkpoint goes on here, and has no form there");
}

bool has_own_scores(const ModelConfig& config) {
  return !config.attention.has_plain_scores() || config.logits_softcap > 0 ||
         config.rope.rope_local_base > 0;
}

void check_scores_of(const HuggingFaceKind& kind, const ModelConfig& config) {
  AttentionConfig attention = config.attention;
  if (&kind == &kGptOssKind) {
    TRIREME_CHECK(attention.attention_sinks,
                  "transformers' GPT-OSS has sinks, and model.attention_sinks is false; the "
                  "checkpoint goes on here, and has no form there");
    attention.attention_sinks = false;  // the others are as below
  }
  const bool is_granite = &kind == &kGraniteKind;
  TRIREME_CHECK(is_granite || config.is_unscaled(), "transformers' ", kind.name,
                " has neither model.embedding_scale (", config.embedding_scale,
                ") nor model.residual_scale (", config.residual_scale,
                ") or model.logits_divisor (", config.logits_divisor,
                "); the checkpoint goes on here, and has no form there");
  if (is_granite) attention.query_scalar = 0;
  const bool has_others = !attention.has_plain_scores() || config.logits_softcap > 0 ||
                          (config.rope.rope_local_base > 0 && &kind != &kOlmo3Kind);
  TRIREME_CHECK(!has_others, "transformers' ", kind.name, " has neither model.query_scalar (",
                attention.query_scalar, ") nor model.attention_softcap (",
                attention.attention_softcap, "), model.attention_sinks (",
                attention.attention_sinks, "), model.logits_softcap (", config.logits_softcap,
                ") or model.rope_local_base (", config.rope.rope_local_base,
                "); the checkpoint goes on here, and has no form there");
}

void check_rope_of(const HuggingFaceKind& kind, const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const bool turns_parts = &kind == &kPhi3Kind || &kind == &kGlm4Kind;
  TRIREME_CHECK(rope.rotary_share == 1 || turns_parts, "transformers' ", kind.name,
                " turns whole heads, and model.rotary_share is ", rope.rotary_share,
                "; the checkpoint goes on here, and has no form there");
  TRIREME_CHECK(rope.rope_layers == "r" || &kind == &kSmolLm3Kind, "transformers' ", kind.name,
                " has positions in every layer, and model.rope_layers is \"", rope.rope_layers,
                "\"; the checkpoint goes on here, and has no form there");
  TRIREME_CHECK(
      &kind != &kOlmo3Kind || rope.rope_scaling == RopeScaling::kNone || rope.rope_local_base > 0,
      "transformers' OLMo 3 scales no layer with a window, and model.rope_scaling is \"",
      name_of(kRopeScalings, rope.rope_scaling),
      "\" with model.rope_local_base 0, for all layers; the checkpoint goes on here, and "
      "has no form there");
  if (&kind != &kPhi3Kind) return;
  const bool is_known =
      rope.rope_scaling == RopeScaling::kNone || rope.rope_scaling == RopeScaling::kLongRope;
  TRIREME_CHECK(is_known && !config.attention.qk_norm && config.attention.head_width == 0,
                "transformers turns parts of heads (model.rotary_share) in its Phi-3, which has "
                "no model.rope_scaling but longrope, no model.qk_norm and no model.head_width; the "
                "checkpoint goes on here, and has no form there");
}

void check_window_of(const HuggingFaceKind& kind, const ModelConfig& config) {
  const AttentionConfig& attention = config.attention;
  const bool has_none = &kind == &kGraniteKind || &kind == &kOlmo2Kind || &kind == &kGlm4Kind;
  TRIREME_CHECK(attention.window == 0 || !has_none, "transformers' ", kind.name,
                " has no window, and model.window is ", attention.window,
                "; the checkpoint goes on here, and has no form there");
  const bool has_kinds = &kind == &kQwen2Kind || &kind == &kQwen3Kind || &kind == &kSmolLm3Kind ||
                         &kind == &kQwen2MoeKind || &kind == &kGptOssKind || &kind == &kOlmo3Kind;
  TRIREME_CHECK(attention.window == 0 || attention.window_layers == "w" || has_kinds,
                "transformers' ", kind.name,
                " has its window on all layers, and "
                "model.window_layers is \"",
                attention.window_layers, "\"; the checkpoint goes on here, and has no form there");
}

void check_experts_of(const HuggingFaceKind& kind, const ModelConfig& config) {
  const ExpertConfig& sparse = config.sparse;
  const auto check = [&](bool is_same, const char* key) {
    TRIREME_CHECK(is_same, "transformers has no class with these experts: its ", kind.name,
                  " has another model.", key,
                  "; the checkpoint goes on here, and has no form there");
  };
  const bool is_deepseek = &kind == &kDeepSeekKind, is_gpt_oss = &kind == &kGptOssKind;
  const bool is_mixtral = &kind == &kMixtralKind || is_gpt_oss;  // likewise
  const bool is_qwen2 = &kind == &kQwen2MoeKind;
  check(sparse.expert_bias == is_gpt_oss, "expert_bias");
  check((sparse.swiglu_limit > 0) == is_gpt_oss, "swiglu_limit");
  check(sparse.experts > 0 || !is_deepseek, "experts");
  check((sparse.shared_experts > 0) == (is_deepseek || is_qwen2), "shared_experts");
  check(sparse.shared_gate == is_qwen2, "shared_gate");
  check(sparse.dense_layers == 0 || !is_mixtral, "dense_layers");
  check(sparse.expert_interval == 1 || &kind == &kQwen3MoeKind || is_qwen2, "expert_interval");
  check(sparse.router_score == (is_deepseek ? RouterScore::kSigmoid : RouterScore::kSoftmax),
        "router_score");
  check(sparse.router_normalise || !is_mixtral, "router_normalise");
  check(sparse.router_scale == 1 || is_deepseek, "router_scale");
  check(sparse.expert_groups == 1 || is_deepseek, "expert_groups");
  check(sparse.router_bias_rate == 0 || is_deepseek, "router_bias_rate");
  check(!sparse.router_bias || is_deepseek, "router_bias");
}

// Mixtral's files have a name of their own for each projection.
std::string mixtral_projection(const std::string& name) {
  if (name.ends_with("gate_proj")) return "w1";
  return name.ends_with("down_proj") ? "w2" : "w3";
}

// A tensor for each expert of a parameter of all.
void add_experts(HuggingFaceForm& form, const HuggingFaceKind& kind,
                 const ParameterPlan& parameter) {
  const size_t experts = parameter.name.find(".experts.");
  const std::string block = parameter.name.substr(0, parameter.name.find(".mlp."));
  const bool is_mixtral = &kind == &kMixtralKind;
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

// GLM-4 has a name of its own for norms behind a branch, and Llama's for that of the feed-forward's
// input.
void rename_norm(std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"post_attention_layernorm", "post_self_attn_layernorm"},
      {"pre_feedforward_layernorm", "post_attention_layernorm"},
      {"post_feedforward_layernorm", "post_mlp_layernorm"}};
  for (const auto& [ours, theirs] : kNames) {
    const size_t at = name.find(ours);
    if (at == name.npos) continue;
    name.replace(at, ours.size(), theirs);
    return;
  }
}

// Qwen2-MoE's shared experts are one.
void rename_shared(std::string& name) {
  constexpr std::string_view kOurs = ".shared_experts.";
  const size_t at = name.find(kOurs);
  if (at != name.npos) name.replace(at, kOurs.size(), ".shared_expert.");
}

// GPT-OSS has the experts in stacks, as here, and the rows of both halves of SwiGLU in turn.
void add_gpt_oss_tensor(HuggingFaceForm& form, const ParameterPlan& parameter) {
  const std::string& name = parameter.name;
  const std::string mlp = name.substr(0, name.find(".mlp.") + sizeof(".mlp.") - 1);
  HuggingFaceTensor tensor = own_tensor(parameter);
  if (name.starts_with(mlp + "gate.")) {
    tensor.name = concat(mlp, "router", name.substr(name.rfind('.')));
    form.tensors.push_back(std::move(tensor));
    return;
  }
  const std::string bias = name.ends_with("_bias") ? "_bias" : "";
  if (name.starts_with(mlp + "experts.up_proj")) {
    HuggingFaceTensor& both = form.tensors.back();
    both.parts.push_back(name);
    both.shape.back() *= 2;
    return;
  }
  tensor.is_transposed = bias.empty();
  if (tensor.is_transposed) std::swap(tensor.shape[1], tensor.shape[2]);
  tensor.alternates = name.starts_with(mlp + "experts.gate_proj");
  if (tensor.alternates) tensor.name = concat(mlp, "experts.gate_up_proj", bias);
  form.tensors.push_back(std::move(tensor));
}

// Which rows of projections are turned by rotary positions, where files have pairs side by side:
// those of latent attention, and in GLM-4 the first of each head, with their biases.
void mark_rotary_rows(HuggingFaceTensor& tensor, const HuggingFaceKind& kind,
                      const ModelConfig& config) {
  const AttentionConfig& latent = config.attention;
  const std::string& name = tensor.name;
  if (&kind == &kGlm4Kind &&
      (name.find(".q_proj.") != name.npos || name.find(".k_proj.") != name.npos)) {
    tensor.head_rows = config.head_width();
    tensor.rotary_rows = config.rotary_width();
    tensor.rotary_first = tensor.has_adjacent_pairs = true;
  }
  if (!latent.is_latent()) return;
  if (name.ends_with(".q_proj.weight") || name.ends_with(".q_b_proj.weight")) {
    tensor.head_rows = latent.qk_width();
  } else if (name.ends_with(".kv_a_proj_with_mqa.weight")) {
    tensor.head_rows = tensor.shape[0];
  } else {
    return;
  }
  tensor.rotary_rows = latent.qk_rope_width;
}

// Phi-3 has queries, keys and values in one matrix, and both halves of SwiGLU in another. GLM-4 has
// the latter. True: the parameter is part of one.
bool add_to_joined(HuggingFaceForm& form, const HuggingFaceKind& kind,
                   const ParameterPlan& parameter) {
  constexpr std::pair<std::string_view, std::string_view> kJoined[] = {
      {"q_proj.weight", "qkv_proj.weight"},
      {"k_proj.weight", "qkv_proj.weight"},
      {"v_proj.weight", "qkv_proj.weight"},
      {"gate_proj.weight", "gate_up_proj.weight"},
      {"up_proj.weight", "gate_up_proj.weight"}};
  const std::string& name = parameter.name;
  for (const auto& [part, joined] : kJoined) {
    if (!name.ends_with(concat(".", part))) continue;
    if (&kind == &kGlm4Kind && joined != "gate_up_proj.weight") continue;
    HuggingFaceTensor tensor = own_tensor(parameter);
    tensor.name = concat(name.substr(0, name.size() - part.size()), joined);
    tensor.part_rows = {tensor.shape[0]};
    const bool is_new = form.tensors.empty() || form.tensors.back().name != tensor.name;
    if (is_new) {
      form.tensors.push_back(std::move(tensor));
    } else {
      HuggingFaceTensor& whole = form.tensors.back();
      whole.shape[0] += tensor.shape[0];
      whole.parts.push_back(name);
      whole.part_rows.push_back(tensor.shape[0]);
    }
    return true;
  }
  return false;
}

void add_tensors(HuggingFaceForm& form, const HuggingFaceKind& kind, const ModelPlan& plan) {
  for (const ParameterPlan& parameter : plan.parameters()) {
    const std::string& name = parameter.name;
    if (&kind == &kGptOssKind && name.find(".mlp.") != name.npos) {
      add_gpt_oss_tensor(form, parameter);
      continue;
    }
    if (name.find(".mlp.experts.") != name.npos) {
      add_experts(form, kind, parameter);
      continue;
    }
    const bool joins = &kind == &kPhi3Kind || &kind == &kGlm4Kind;
    if (joins && add_to_joined(form, kind, parameter)) continue;
    form.tensors.push_back(own_tensor(parameter));
    mark_rotary_rows(form.tensors.back(), kind, plan.config());
    if (&kind == &kQwen2MoeKind) rename_shared(form.tensors.back().name);
    if (&kind == &kGlm4Kind) rename_norm(form.tensors.back().name);
    const bool is_router = name.ends_with(".mlp.gate.weight");
    if (!is_router) continue;
    if (&kind == &kMixtralKind) {
      form.tensors.back().name =
          name.substr(0, name.find(".mlp.")) + ".block_sparse_moe.gate.weight";
    }
    if (!plan.config().sparse.has_router_bias()) continue;
    const std::string bias =
        name.substr(0, name.size() - sizeof("weight") + 1) + "e_score_correction_bias";
    form.tensors.push_back({bias, {plan.config().sparse.experts}, {bias}});
  }
}

// Our names and those of torchtitan's Llama, whose blocks are "layers.N.".
constexpr std::pair<std::string_view, std::string_view> kTorchtitanNames[] = {
    {"model.embed_tokens.weight", "tok_embeddings.weight"},
    {"model.norm.weight", "norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "attention_norm.weight"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"self_attn.q_proj.weight", "attention.wq.weight"},
    {"self_attn.k_proj.weight", "attention.wk.weight"},
    {"self_attn.v_proj.weight", "attention.wv.weight"},
    {"self_attn.o_proj.weight", "attention.wo.weight"},
    {"mlp.gate_proj.weight", "feed_forward.w1.weight"},
    {"mlp.up_proj.weight", "feed_forward.w3.weight"},
    {"mlp.down_proj.weight", "feed_forward.w2.weight"}};

std::string torchtitan_name(std::string_view name) {
  constexpr std::string_view kBlocks = "model.layers.";
  std::string block;
  if (name.starts_with(kBlocks)) {
    const size_t end = name.find('.', kBlocks.size()) + 1;
    block = concat("layers.", name.substr(kBlocks.size(), end - kBlocks.size()));
    name.remove_prefix(end);
  }
  const auto* const found = std::ranges::find(
      kTorchtitanNames, name, &std::pair<std::string_view, std::string_view>::first);
  TRIREME_ASSERT(found != std::end(kTorchtitanNames), name, " has no name in torchtitan");
  return concat("model.", block, found->second);
}

}  // namespace

std::vector<HuggingFaceTensor> llama_joined_tensors(const ModelPlan& plan) {
  const HuggingFaceKind& kind = kind_of(plan.config());
  const bool is_plain = &kind == &kLlamaKind || &kind == &kMistralKind;
  if (!is_plain || plan.config().vision.is_on()) return {};
  HuggingFaceForm form;
  add_tensors(form, kPhi3Kind, plan);
  return form.tensors;
}

std::vector<HuggingFaceTensor> llama_torchtitan_tensors(const ModelPlan& plan) {
  const ModelConfig& config = plan.config();
  const bool is_llama =
      config.sparse.experts == 0 && !config.vision.is_on() && &kind_of(config) == &kLlamaKind;
  if (!is_llama || has_own_scores(config) || config.attention.attention_output_bias) return {};
  std::vector<HuggingFaceTensor> tensors;
  for (const ParameterPlan& parameter : plan.parameters()) {
    HuggingFaceTensor tensor = own_tensor(parameter);
    tensor.name = torchtitan_name(parameter.name);
    if (tensor.name.ends_with(".wq.weight") || tensor.name.ends_with(".wk.weight"))
      tensor.head_rows = tensor.rotary_rows = config.head_width();
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

HuggingFaceForm llama_form(const ModelPlan& plan) {
  const ModelConfig& config = plan.config();
  const HuggingFaceKind& kind = kind_of(config);
  check_attention_of(kind, config);
  check_norms_of(kind, config);
  check_scores_of(kind, config);
  check_rope_of(kind, config);
  check_window_of(kind, config);
  if (config.sparse.experts > 0 || &kind == &kGptOssKind || &kind == &kDeepSeekKind)
    check_experts_of(kind, config);
  HuggingFaceForm form{.kind = &kind};
  add_tensors(form, kind, plan);
  if (!config.vision.is_on()) return form;
  TRIREME_CHECK(&kind == &kLlamaKind, "transformers' LLaVA has a Llama here, and the model is a ",
                kind.name, "; the checkpoint goes on here, and has no form there");
  form.kind = &kLlavaKind;
  for (HuggingFaceTensor& tensor : form.tensors) tensor.name = llava_name(tensor.name);
  return form;
}

}  // namespace trireme::model
