#include "trireme/model/llama/llama_form.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/model/family/hugging_face_mapping.h"
#include "trireme/model/keys/hugging_face_rope.h"
#include "trireme/model/keys/hugging_face_window.h"
#include "trireme/model/llama/dense_keys.h"
#include "trireme/model/llama/expert_keys.h"
#include "trireme/model/llama/scale_keys.h"

namespace trireme::model {

// A class of transformers is a list of keys: which of ours each one sets, what the class assumes
// without it, and which values it must have. Classes assume different values for the same missing
// key, so these stand here for each class and are never our own defaults; a short config.json would
// otherwise become another model. A fixed key would change the logits, and an ignored one changes
// nothing that is computed here. What computes the same as another class is read as that one:
// a Mistral without a window is a Llama.

namespace {

Keys llama_keys() {
  Keys keys = full_attention_keys();
  append(keys, {biases_key(/*missing=*/false), no_window_key()});
  return keys;
}

Keys granite_keys() {
  Keys keys = llama_keys();
  append(keys, scale_keys());
  return keys;
}

Keys mistral_keys() {
  Keys keys = full_attention_keys(/*missing_kv_heads=*/8);
  append(keys, {fixed("attention_bias", false), window_key(int64_t{4096})});
  return keys;
}

Keys smollm3_keys() {
  Keys keys = dense_keys(/*missing_kv_heads=*/4);
  assume(keys, "rope_theta", 2e6);
  assume(keys, "tie_word_embeddings", true);
  keys.push_back(biases_key(/*missing=*/false));
  append(keys, qwen_window_keys());
  append(keys, rotary_layers_keys());
  return keys;
}

Keys qwen2_keys() {
  Keys keys = dense_keys(/*missing_kv_heads=*/32);
  append(keys, qwen_window_keys());
  return keys;
}

Keys qwen3_keys() {
  Keys keys = dense_keys(/*missing_kv_heads=*/32, /*missing_head_width=*/128);
  keys.push_back(fixed("attention_bias", false));
  append(keys, qwen_window_keys());
  return keys;
}

Keys phi3_keys() {
  Keys keys = plain_keys(/*missing_epsilon=*/1e-5);
  HuggingFaceKey kv_heads = mapped("num_key_value_heads", &ModelConfig::kv_heads);
  kv_heads.null = [](const ModelConfig& config) -> HuggingFaceValue { return config.heads; };
  kv_heads.missing = kv_heads.null;
  HuggingFaceKey head_width = head_width_key();  // which only some files have
  head_width.is_written = false;
  append(keys, {mapped("intermediate_size", &ModelConfig::ffn_width), std::move(kv_heads),
                std::move(head_width)});
  append(keys, phi3_rope_keys());
  append(keys, {expected("attention_bias", false), expected("lm_head_bias", false),
                expected("full_attn_mod", int64_t{1}), expected("interpolate_factor", int64_t{1}),
                written("resid_pdrop", 0.0), written("embd_pdrop", 0.0), window_key(nullptr)});
  return keys;
}

// other_name: see HuggingFaceKey::other_name
HuggingFaceKey experts_key(std::string name, std::string other_name) {
  HuggingFaceKey key = mapped(std::move(name), &ExpertConfig::experts);
  key.other_name = std::move(other_name);
  return key;
}

Keys mixtral_keys() {
  Keys keys = common_keys(/*missing_epsilon=*/1e-5, /*missing_base=*/1e6);
  HuggingFaceKey ffn = mapped("intermediate_size", &ModelConfig::ffn_width);
  ffn.value = [](const ModelConfig& config) -> HuggingFaceValue { return config.expert_width(); };
  append(keys, {ffn, mapped("num_key_value_heads", &ModelConfig::kv_heads), head_width_key(),
                fixed("attention_bias", false), ignored("max_window_layers"), layer_types_key(),
                experts_key("num_local_experts", "num_experts"),
                mapped("num_experts_per_tok", &ExpertConfig::experts_per_token),
                written("router_jitter_noise", 0.0)});
  append(keys, balance_keys());
  keys.push_back(window_key(nullptr));
  return keys;
}

Keys qwen3_moe_keys() {
  Keys keys = common_keys();
  append(keys, {mapped("intermediate_size", &ModelConfig::ffn_width),
                mapped("num_key_value_heads", &ModelConfig::kv_heads), head_width_key(),
                fixed("attention_bias", false), experts_key("num_experts", "num_local_experts"),
                mapped("num_experts_per_tok", &ExpertConfig::experts_per_token),
                expert_width_key("moe_intermediate_size"),
                mapped("norm_topk_prob", &ExpertConfig::router_normalise, always(false)),
                mapped("decoder_sparse_step", &ExpertConfig::expert_interval, always(int64_t{1})),
                dense_blocks_key()});
  append(keys, balance_keys());
  append(keys, qwen_window_keys());
  return keys;
}

Keys qwen2_moe_keys() {
  Keys keys = common_keys();
  append(keys,
         {mapped("intermediate_size", &ModelConfig::ffn_width),
          mapped("num_key_value_heads", &ModelConfig::kv_heads, always(int64_t{16})),
          head_width_key(), mapped("qkv_bias", &AttentionConfig::attention_bias, always(true)),
          experts_key("num_experts", "num_local_experts"),
          mapped("num_experts_per_tok", &ExpertConfig::experts_per_token, always(int64_t{4})),
          expert_width_key("moe_intermediate_size"),
          shared_width_key("shared_expert_intermediate_size", /*missing_width=*/5632),
          mapped("norm_topk_prob", &ExpertConfig::router_normalise, always(false)),
          mapped("decoder_sparse_step", &ExpertConfig::expert_interval, always(int64_t{1})),
          dense_blocks_key()});
  append(keys, balance_keys());
  append(keys, qwen_window_keys());
  return keys;
}

HuggingFaceKey query_rank_key() {
  HuggingFaceKey key = mapped("q_lora_rank", &AttentionConfig::q_lora_rank);
  key.value = [](const ModelConfig& config) -> HuggingFaceValue {
    if (config.attention.q_lora_rank > 0) return config.attention.q_lora_rank;
    return nullptr;
  };
  key.take = [](const JsonView& found, HuggingFaceModel& model) {
    model.config.attention.q_lora_rank =
        found.value().is_null() ? 0 : read_as(found, &AttentionConfig::q_lora_rank);
  };
  return key;
}

// Pairs are halves apart, as in all families here. Files in which they are not are reordered.
HuggingFaceKey pairs_key() {
  HuggingFaceKey key = written("rope_interleave", false);
  key.take = [](const JsonView& found, HuggingFaceModel& model) {
    model.has_adjacent_pairs = found.boolean();
  };
  key.missing = always(true);
  key.null = always(false);
  key.is_kept = nullptr;
  return key;
}

Keys deepseek_keys() {
  Keys keys = common_keys();
  append(keys, {mapped("intermediate_size", &ModelConfig::ffn_width),
                mapped("num_key_value_heads", &ModelConfig::kv_heads),
                fixed("attention_bias", false),
                ignored("max_window_layers"),
                layer_types_key(),
                experts_key("n_routed_experts", "num_local_experts"),
                mapped("n_shared_experts", &ExpertConfig::shared_experts),
                mapped("num_experts_per_tok", &ExpertConfig::experts_per_token),
                expert_width_key("moe_intermediate_size"),
                mapped("first_k_dense_replace", &ExpertConfig::dense_layers),
                mapped("n_group", &ExpertConfig::expert_groups),
                mapped("topk_group", &ExpertConfig::groups_per_token),
                mapped("norm_topk_prob", &ExpertConfig::router_normalise, always(true)),
                mapped("routed_scaling_factor", &ExpertConfig::router_scale),
                mapped("kv_lora_rank", &AttentionConfig::kv_lora_rank),
                query_rank_key(),
                mapped("qk_nope_head_dim", &AttentionConfig::qk_nope_width),
                mapped("qk_rope_head_dim", &AttentionConfig::qk_rope_width),
                mapped("v_head_dim", &AttentionConfig::v_head_width),
                pairs_key(),
                expected("scoring_func", std::string("sigmoid")),
                expected("topk_method", std::string("noaux_tc")),
                expected("moe_layer_freq", int64_t{1})});
  // The sum of others, layers that transformers does not compute, and what concerns training.
  for (const char* name :
       {"head_dim", "qk_head_dim", "num_nextn_predict_layers", "num_mtp_layers", "ep_size",
        "aux_loss_alpha", "seq_aux", "output_router_logits", "router_aux_loss_coef"}) {
    keys.push_back(ignored(name));
  }
  return keys;
}

// The weights of MXFP4 are read as bf16 (checkpoint/foreign/mxfp4.h).
HuggingFaceKey mxfp4_key() {
  HuggingFaceKey key = no_quantization_key();
  key.take = [](const JsonView& found, HuggingFaceModel& model) {
    if (found.value().is_null()) return;
    const JsonView method = found.at("quant_method");
    if (method.text() != "mxfp4") method.fail("\"mxfp4\", or weights that are not quantised");
    model.notes.emplace_back(
        "quantization_config says mxfp4: weights that are stored so are dequantised, and an "
        "export has them as they are then");
  };
  return key;
}

// Without an object of rotary positions the class has another than most.
constexpr const char* kGptOssRope =
    R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": false, "original_max_position_embeddings": 4096})";

// Plain positions are written too: see kGptOssRope.
void write_plain_rope(Keys& keys) {
  std::erase_if(keys, [](const HuggingFaceKey& key) { return key.name == kRopeObject; });
  const auto type =
      std::ranges::find(keys, concat(kRopePrefix, "rope_type"), &HuggingFaceKey::name);
  type->value = [value = type->value](const ModelConfig& config) -> HuggingFaceValue {
    if (config.rope.rope_scaling == RopeScaling::kNone) return std::string("default");
    return value(config);
  };
  type->is_left_out = nullptr;
}

Keys gpt_oss_keys() {
  Keys keys = common_keys(/*missing_epsilon=*/1e-5, /*missing_base=*/1.5e5);
  write_plain_rope(keys);
  std::erase_if(keys, [](const HuggingFaceKey& key) { return key.name == "mlp_bias"; });
  HuggingFaceKey ffn = mapped("intermediate_size", &ModelConfig::ffn_width);
  ffn.value = [](const ModelConfig& config) -> HuggingFaceValue { return config.expert_width(); };
  HuggingFaceKey kv_heads = mapped("num_key_value_heads", &ModelConfig::kv_heads);
  kv_heads.missing = always(int64_t{8});
  kv_heads.null = [](const ModelConfig& config) -> HuggingFaceValue { return config.heads; };
  append(keys, {std::move(ffn), std::move(kv_heads), head_width_key(/*missing_width=*/64),
                biases_key(/*missing=*/true), experts_key("num_local_experts", "num_experts"),
                mapped("num_experts_per_tok", &ExpertConfig::experts_per_token),
                mapped("swiglu_limit", &ExpertConfig::swiglu_limit, always(7.0)),
                mapped("swiglu_alpha", &ExpertConfig::swiglu_alpha, always(1.702)), mxfp4_key(),
                // Of OpenAI's own program.
                ignored("experts_per_token"), ignored("initial_context_length")});
  append(keys, balance_keys());
  append(keys, gemma_window_keys());
  return keys;
}

void begin_llama(HuggingFaceModel& model) { model.config.family = "llama"; }
void begin_qwen2(HuggingFaceModel& model) { model.config.attention.attention_bias = true; }
void begin_qwen3(HuggingFaceModel& model) { model.config.attention.qk_norm = true; }
void begin_qwen2_moe(HuggingFaceModel& model) { model.config.sparse.shared_gate = true; }
void begin_mixtral(HuggingFaceModel& model) { model.config.family = "mixtral"; }
void begin_gpt_oss(HuggingFaceModel& model) {
  model.config.attention.attention_sinks = true;
  model.config.sparse.expert_bias = true;
}
void begin_deepseek(HuggingFaceModel& model) {
  ExpertConfig& sparse = model.config.sparse;
  sparse.router_score = RouterScore::kSigmoid;
  sparse.router_bias = true;
  sparse.balance_loss = 0;
  model.notes.emplace_back(
      "transformers trains DeepSeek-V3 without a loss that balances its experts and never changes "
      "its routers' biases, so model.balance_loss and model.router_bias_rate are 0; DeepSeek "
      "trained with 1e-4 and 1e-3");
}

}  // namespace

const HuggingFaceKind kLlamaKind{.name = "Llama",
                                 .type = "llama",
                                 .architecture = "LlamaForCausalLM",
                                 .keys = llama_keys,
                                 .begin = begin_llama};
const HuggingFaceKind kMistralKind{.name = "Mistral",
                                   .type = "mistral",
                                   .architecture = "MistralForCausalLM",
                                   .keys = mistral_keys,
                                   .begin = begin_llama};
const HuggingFaceKind kQwen2Kind{.name = "Qwen2",
                                 .type = "qwen2",
                                 .architecture = "Qwen2ForCausalLM",
                                 .keys = qwen2_keys,
                                 .begin = begin_qwen2,
                                 .finish = take_qwen_window};
const HuggingFaceKind kQwen3Kind{.name = "Qwen3",
                                 .type = "qwen3",
                                 .architecture = "Qwen3ForCausalLM",
                                 .keys = qwen3_keys,
                                 .begin = begin_qwen3,
                                 .finish = take_qwen_window};
const HuggingFaceKind kPhi3Kind{.name = "Phi-3",
                                .type = "phi3",
                                .architecture = "Phi3ForCausalLM",
                                .keys = phi3_keys,
                                .begin = begin_llama};
const HuggingFaceKind kSmolLm3Kind{.name = "SmolLM3",
                                   .type = "smollm3",
                                   .architecture = "SmolLM3ForCausalLM",
                                   .keys = smollm3_keys,
                                   .begin = begin_llama,
                                   .finish = take_smollm3_layers};
const HuggingFaceKind kGraniteKind{.name = "Granite",
                                   .type = "granite",
                                   .architecture = "GraniteForCausalLM",
                                   .keys = granite_keys,
                                   .begin = begin_llama};
const HuggingFaceKind kGptOssKind{.name = "GPT-OSS",
                                  .type = "gpt_oss",
                                  .architecture = "GptOssForCausalLM",
                                  .keys = gpt_oss_keys,
                                  .begin = begin_gpt_oss,
                                  .finish = take_gpt_oss_window,
                                  .missing_rope = kGptOssRope};
const HuggingFaceKind kMixtralKind{.name = "Mixtral",
                                   .type = "mixtral",
                                   .architecture = "MixtralForCausalLM",
                                   .keys = mixtral_keys,
                                   .begin = begin_mixtral};
const HuggingFaceKind kQwen2MoeKind{.name = "Qwen2-MoE",
                                    .type = "qwen2_moe",
                                    .architecture = "Qwen2MoeForCausalLM",
                                    .keys = qwen2_moe_keys,
                                    .begin = begin_qwen2_moe,
                                    .finish = take_qwen2_moe_window};
const HuggingFaceKind kQwen3MoeKind{.name = "Qwen3-MoE",
                                    .type = "qwen3_moe",
                                    .architecture = "Qwen3MoeForCausalLM",
                                    .keys = qwen3_moe_keys,
                                    .begin = begin_qwen3,
                                    .finish = take_qwen_moe_window};
const HuggingFaceKind kDeepSeekKind{.name = "DeepSeek-V3",
                                    .type = "deepseek_v3",
                                    .architecture = "DeepseekV3ForCausalLM",
                                    .keys = deepseek_keys,
                                    .begin = begin_deepseek,
                                    .finish = check_deepseek_rope};

std::span<const HuggingFaceKind* const> llama_kinds() {
  static constexpr const HuggingFaceKind* kKinds[] = {
      &kLlamaKind,    &kMistralKind,  &kQwen2Kind,    &kQwen3Kind,  &kPhi3Kind,
      &kSmolLm3Kind,  &kGraniteKind,  &kOlmo2Kind,    &kOlmo3Kind,  &kGlm4Kind,
      &kQwen2MoeKind, &kQwen3MoeKind, &kDeepSeekKind, &kGptOssKind, &kLlavaKind};
  return kKinds;
}

std::span<const HuggingFaceKind* const> mixtral_kinds() {
  static constexpr const HuggingFaceKind* kKinds[] = {&kMixtralKind};
  return kKinds;
}

}  // namespace trireme::model
