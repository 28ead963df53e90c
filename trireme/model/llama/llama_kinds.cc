#include "trireme/model/llama/llama_kinds.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/model/family/hugging_face_mapping.h"

namespace trireme::model::inline internal {
namespace {

using Keys = std::vector<HuggingFaceKey>;

void append(Keys& keys, Keys more) { std::ranges::move(more, std::back_inserter(keys)); }

// `missing_width`: what the class assumes without the key; 0: width / heads.
HuggingFaceKey head_width_key(int64_t missing_width = 0) {
  return {
      .name = "head_dim",
      .value = [](const ModelConfig& config) -> HuggingFaceValue { return config.head_width(); },
      .take =
          [](const JsonView& found, HuggingFaceModel& model) {
            ModelConfig& config = model.config;
            const int64_t width = read_as(found, &AttentionConfig::head_width);
            config.attention.head_width = config.heads * width == config.width ? 0 : width;
          },
      .missing = [missing_width](const ModelConfig& config) -> HuggingFaceValue {
        return missing_width > 0 ? missing_width : config.width / config.heads;
      }};
}

// A window that is never shorter than a sequence, so that it hides nothing.
HuggingFaceKey window_key(HuggingFaceValue missing) {
  return {.name = "sliding_window",
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                const ModelConfig& config = model.config;
                if (found.value().is_null()) return;
                if (found.integer(0) >= config.sequence_length) return;
                found.fail(
                    concat("null, or at least max_position_embeddings = ", config.sequence_length,
                           ": attention here has no window; lower "
                           "max_position_embeddings to use the model for shorter sequences"));
              },
          .missing = always(std::move(missing)),
          .is_written = false};
}

HuggingFaceKey layer_types_key() {
  return {.name = "layer_types",
          .take =
              [](const JsonView& found, HuggingFaceModel& /*model*/) {
                if (found.value().is_null()) return;
                for (const JsonView& type : found.elements()) {
                  if (type.text() != "full_attention") type.fail("\"full_attention\"");
                }
              },
          .missing = always(nullptr),
          .is_written = false};
}

// What all classes have, and what they assume without two of the keys.
Keys common_keys(double missing_epsilon = 1e-6, double missing_base = 1e4) {
  return {mapped("vocab_size", &ModelConfig::vocab_size),
          mapped("hidden_size", &ModelConfig::width),
          mapped("num_hidden_layers", &ModelConfig::layers),
          mapped("num_attention_heads", &ModelConfig::heads),
          fixed("hidden_act", std::string("silu")),
          mapped("max_position_embeddings", &ModelConfig::sequence_length),
          mapped("rms_norm_eps", &ModelConfig::norm_epsilon, always(missing_epsilon)),
          mapped("rope_theta", &ModelConfig::rope_base, always(missing_base)),
          fixed("rope_scaling", nullptr),
          written("attention_dropout", 0.0),
          fixed("mlp_bias", false),
          mapped("tie_word_embeddings", &ModelConfig::tied_embedding, always(false)),
          ignored("max_window_layers"),
          layer_types_key()};
}

Keys dense_keys(int64_t missing_head_width = 0) {
  Keys keys = common_keys();
  append(keys, {mapped("intermediate_size", &ModelConfig::ffn_width),
                mapped("num_key_value_heads", &ModelConfig::kv_heads,
                       [](const ModelConfig& config) -> HuggingFaceValue { return config.heads; }),
                head_width_key(missing_head_width)});
  return keys;
}

Keys llama_keys() {
  Keys keys = dense_keys();
  keys.push_back(fixed("attention_bias", false));
  return keys;
}

Keys mistral_keys() {
  Keys keys = llama_keys();
  keys.push_back(window_key(int64_t{4096}));
  return keys;
}

// Qwen's windows are off by default.
Keys without_window() { return {expected("use_sliding_window", false), ignored("sliding_window")}; }

Keys qwen2_keys() {
  Keys keys = dense_keys();
  append(keys, without_window());
  return keys;
}

Keys qwen3_keys() {
  Keys keys = dense_keys(/*missing_head_width=*/128);
  keys.push_back(fixed("attention_bias", false));
  append(keys, without_window());
  return keys;
}

HuggingFaceKey expert_width_key(std::string name) {
  HuggingFaceKey key = mapped(std::move(name), &ExpertConfig::expert_width);
  key.value = [](const ModelConfig& config) -> HuggingFaceValue { return config.expert_width(); };
  return key;
}

Keys mixtral_keys() {
  Keys keys = common_keys(/*missing_epsilon=*/1e-5, /*missing_base=*/1e6);
  HuggingFaceKey ffn = mapped("intermediate_size", &ModelConfig::ffn_width);
  ffn.value = [](const ModelConfig& config) -> HuggingFaceValue { return config.expert_width(); };
  append(keys, {ffn, mapped("num_key_value_heads", &ModelConfig::kv_heads), head_width_key(),
                fixed("attention_bias", false), mapped("num_local_experts", &ExpertConfig::experts),
                mapped("num_experts_per_tok", &ExpertConfig::experts_per_token),
                mapped("router_aux_loss_coef", &ExpertConfig::balance_loss, always(0.001)),
                written("router_jitter_noise", 0.0), written("output_router_logits", false),
                window_key(nullptr), written("sliding_window", nullptr)});
  return keys;
}

HuggingFaceKey dense_blocks_key() {
  return {.name = "mlp_only_layers",
          .value = [](const ModelConfig& config) -> HuggingFaceValue {
            std::vector<int64_t> dense;
            for (int64_t layer = 0; layer < config.sparse.dense_layers; ++layer) {
              dense.push_back(layer);
            }
            return dense;
          },
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                model.config.sparse.dense_layers = std::ssize(found.elements());
              },
          .missing = always(std::vector<int64_t>())};
}

Keys qwen3_moe_keys() {
  Keys keys = common_keys();
  HuggingFaceKey experts = mapped("num_experts", &ExpertConfig::experts);
  experts.other_name = "num_local_experts";
  append(keys, {mapped("intermediate_size", &ModelConfig::ffn_width),
                mapped("num_key_value_heads", &ModelConfig::kv_heads), head_width_key(),
                fixed("attention_bias", false), experts,
                mapped("num_experts_per_tok", &ExpertConfig::experts_per_token),
                expert_width_key("moe_intermediate_size"),
                mapped("norm_topk_prob", &ExpertConfig::router_normalise, always(false)),
                mapped("decoder_sparse_step", &ExpertConfig::expert_interval, always(int64_t{1})),
                dense_blocks_key(),
                mapped("router_aux_loss_coef", &ExpertConfig::balance_loss, always(0.001)),
                written("output_router_logits", false), fixed("use_sliding_window", false),
                ignored("sliding_window")});
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
  return key;
}

Keys deepseek_keys() {
  Keys keys = common_keys();
  append(keys, {mapped("intermediate_size", &ModelConfig::ffn_width),
                mapped("num_key_value_heads", &ModelConfig::kv_heads),
                fixed("attention_bias", false),
                mapped("n_routed_experts", &ExpertConfig::experts),
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
  for (const char* name : {"head_dim", "qk_head_dim", "num_nextn_predict_layers", "ep_size",
                           "aux_loss_alpha", "seq_aux", "output_router_logits"}) {
    keys.push_back(ignored(name));
  }
  return keys;
}

void begin_llama(ModelConfig& config) { config.family = "llama"; }
void begin_qwen2(ModelConfig& config) { config.attention.attention_bias = true; }
void begin_qwen3(ModelConfig& config) { config.attention.qk_norm = true; }
void begin_mixtral(ModelConfig& config) { config.family = "mixtral"; }
void begin_deepseek(ModelConfig& config) {
  config.sparse.router_score = RouterScore::kSigmoid;
  config.sparse.router_bias_rate = 1e-3;  // as DeepSeek-V3 was trained
}

const HuggingFaceKind kMistralKind{.name = "Mistral",
                                   .type = "mistral",
                                   .architecture = "MistralForCausalLM",
                                   .keys = mistral_keys,
                                   .begin = begin_llama};

}  // namespace

const HuggingFaceKind kLlamaKind{.name = "Llama",
                                 .type = "llama",
                                 .architecture = "LlamaForCausalLM",
                                 .keys = llama_keys,
                                 .begin = begin_llama};
const HuggingFaceKind kQwen2Kind{.name = "Qwen2",
                                 .type = "qwen2",
                                 .architecture = "Qwen2ForCausalLM",
                                 .keys = qwen2_keys,
                                 .begin = begin_qwen2};
const HuggingFaceKind kQwen3Kind{.name = "Qwen3",
                                 .type = "qwen3",
                                 .architecture = "Qwen3ForCausalLM",
                                 .keys = qwen3_keys,
                                 .begin = begin_qwen3};
const HuggingFaceKind kMixtralKind{.name = "Mixtral",
                                   .type = "mixtral",
                                   .architecture = "MixtralForCausalLM",
                                   .keys = mixtral_keys,
                                   .begin = begin_mixtral};
const HuggingFaceKind kQwen3MoeKind{.name = "Qwen3-MoE",
                                    .type = "qwen3_moe",
                                    .architecture = "Qwen3MoeForCausalLM",
                                    .keys = qwen3_moe_keys,
                                    .begin = begin_qwen3};
const HuggingFaceKind kDeepSeekKind{.name = "DeepSeek-V3",
                                    .type = "deepseek_v3",
                                    .architecture = "DeepseekV3ForCausalLM",
                                    .keys = deepseek_keys,
                                    .begin = begin_deepseek};

std::span<const HuggingFaceKind* const> llama_kinds() {
  static constexpr const HuggingFaceKind* kKinds[] = {&kLlamaKind, &kMistralKind,  &kQwen2Kind,
                                                      &kQwen3Kind, &kQwen3MoeKind, &kDeepSeekKind};
  return kKinds;
}

std::span<const HuggingFaceKind* const> mixtral_kinds() {
  static constexpr const HuggingFaceKind* kKinds[] = {&kMixtralKind};
  return kKinds;
}

}  // namespace trireme::model::inline internal
