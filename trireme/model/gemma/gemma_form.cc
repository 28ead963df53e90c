#include "trireme/model/gemma/gemma_form.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/model/family/hugging_face_mapping.h"
#include "trireme/model/keys/hugging_face_rope.h"
#include "trireme/model/keys/hugging_face_window.h"

namespace trireme::model {
namespace {

using Keys = std::vector<HuggingFaceKey>;

constexpr int64_t kScalar = 256;  // what the classes assume for the head width and the scalar
constexpr int64_t kKvHeads = 4;   // and for the kv heads
constexpr double kScoreCap = 50;  // and Gemma 2 for its caps
constexpr double kLogitsCap = 30;

// Ours is 0 for the head width.
HuggingFaceKey scalar_key() {
  return {.name = "query_pre_attn_scalar",
          .value = [](const ModelConfig& config) -> HuggingFaceValue {
            const int64_t scalar = config.attention.query_scalar;
            return scalar > 0 ? scalar : config.head_width();
          },
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                ModelConfig& config = model.config;
                const int64_t scalar = found.integer(1, kMaxWidth);
                config.attention.query_scalar = scalar == config.head_width() ? 0 : scalar;
              },
          .missing = always(kScalar)};
}

// Ours is 0 for null.
template <typename Section>
HuggingFaceKey cap_key(std::string name, double Section::*member, HuggingFaceValue missing) {
  return {.name = std::move(name),
          .value = [member](const ModelConfig& config) -> HuggingFaceValue {
            const double cap = section_of<Section>(config).*member;
            if (cap > 0) return cap;
            return nullptr;
          },
          .take =
              [member](const JsonView& found, HuggingFaceModel& model) {
                const bool is_none = found.value().is_null();
                section_of<Section>(model.config).*member = is_none ? 0 : found.number(1e-6, 1e6);
              },
          .missing = always(std::move(missing)),
          .null = always(nullptr)};
}

// null is false.
HuggingFaceKey causal_key() {
  HuggingFaceKey key = expected("use_bidirectional_attention", false);
  key.missing = always(false);
  return key;
}

void append(Keys& keys, Keys more) { std::ranges::move(more, std::back_inserter(keys)); }

// base: the angle of the full layers that the class assumes
Keys common_keys(double base, const HuggingFaceValue& logits_cap) {
  Keys keys = {
      mapped("vocab_size", &ModelConfig::vocab_size), mapped("hidden_size", &ModelConfig::width),
      mapped("intermediate_size", &ModelConfig::ffn_width),
      mapped("num_hidden_layers", &ModelConfig::layers),
      mapped("num_attention_heads", &ModelConfig::heads),
      mapped("num_key_value_heads", &ModelConfig::kv_heads, always(kKvHeads)),
      head_width_key(kScalar), fixed("hidden_activation", std::string("gelu_pytorch_tanh")),
      // transformers reads the newer name alone.
      ignored("hidden_act"), length_key(),
      mapped("rms_norm_eps", &ModelConfig::norm_epsilon, always(1e-6)),
      mapped("rope_theta", &ModelConfig::rope_base, always(base)),
      written("attention_dropout", 0.0), fixed("attention_bias", false),
      mapped("tie_word_embeddings", &ModelConfig::tied_embedding, always(true)), scalar_key(),
      cap_key("final_logit_softcapping", &ModelConfig::logits_softcap, logits_cap), causal_key(),
      expected("partial_rotary_factor", 1.0)};
  append(keys, rope_keys());
  append(keys, gemma_window_keys());
  return keys;
}

Keys gemma2_keys() {
  Keys keys = common_keys(/*base=*/1e4, kLogitsCap);
  keys.push_back(cap_key("attn_logit_softcapping", &AttentionConfig::attention_softcap, kScoreCap));
  // A second name of the window in some files, which transformers never reads.
  keys.push_back(ignored("sliding_window_size"));
  return keys;
}

Keys gemma3_keys() {
  Keys keys = common_keys(/*base=*/1e6, nullptr);
  append(keys, {local_base_key(/*missing=*/1e4),
                // transformers reads it and computes without a cap.
                HuggingFaceKey{.name = "attn_logit_softcapping",
                               .value = always(nullptr),
                               .is_written = false,
                               .is_compared = false},
                // Read at the end, and what transformers makes of it.
                ignored("sliding_window_pattern"), ignored("_sliding_window_pattern")});
  return keys;
}

constexpr const char* kNoForm = "; the checkpoint goes on here, and has no form there";

// transformers refuses it, though the heads have a width of their own.
void check_width(const ModelConfig& config, const char* end) {
  TRIREME_CHECK(config.heads < 1 || config.width % config.heads == 0,
                "transformers' Gemma refuses a model.width, here ", config.width,
                ", that is no multiple of model.heads, here ", config.heads, end);
}

void begin_gemma2(HuggingFaceModel& model) { model.config.family = "gemma"; }
void begin_gemma3(HuggingFaceModel& model) {
  model.config.family = "gemma";
  model.config.attention.qk_norm = true;
}
void finish_gemma2(const JsonView& root, ModelConfig& config) {
  check_width(config, "");
  take_gemma2_window(root, config);
}
void finish_gemma3(const JsonView& root, ModelConfig& config) {
  check_width(config, "");
  take_gemma3_window(root, config);
  if (config.attention.window == 0) config.rope.rope_local_base = 0;
}

void check_form(const HuggingFaceKind& kind, const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  TRIREME_CHECK(!config.attention.attention_bias && !config.attention.attention_output_bias,
                "transformers' ", kind.name,
                " trains without biases in attention (model.attention_bias and "
                "model.attention_output_bias)",
                kNoForm);
  TRIREME_CHECK(!config.attention.norms_all_heads(), "transformers' ", kind.name,
                " norms each head by itself, and model.qk_norm_over is \"all\"", kNoForm);
  TRIREME_CHECK(rope.rope_layers == "r", "transformers' ", kind.name,
                " has positions in every layer, and model.rope_layers is \"", rope.rope_layers,
                "\"", kNoForm);
  TRIREME_CHECK(!config.attention.attention_sinks, "transformers' ", kind.name,
                " has no model.attention_sinks", kNoForm);
  TRIREME_CHECK(rope.rotary_share == 1, "transformers' ", kind.name,
                " turns whole heads, and model.rotary_share is ", rope.rotary_share, kNoForm);
  check_width(config, kNoForm);
  if (!kind.has_local_rope) {
    TRIREME_CHECK(
        rope.rope_local_base == 0,
        "transformers' Gemma 2 has one angle for all layers, and model.rope_local_base is ",
        rope.rope_local_base, kNoForm);
    return;
  }
  TRIREME_CHECK(config.attention.attention_softcap == 0,
                "transformers' Gemma 3 caps no scores, and model.attention_softcap is ",
                config.attention.attention_softcap, kNoForm);
  TRIREME_CHECK(rope.rope_scaling == RopeScaling::kNone || config.attention.window == 0 ||
                    rope.rope_local_base > 0,
                "transformers' Gemma 3 scales no layer with a window, and model.rope_scaling is \"",
                name_of(kRopeScalings, rope.rope_scaling),
                "\" with model.rope_local_base 0, for all layers", kNoForm);
}

}  // namespace

const HuggingFaceKind kGemma2Kind{.name = "Gemma 2",
                                  .type = "gemma2",
                                  .architecture = "Gemma2ForCausalLM",
                                  .keys = gemma2_keys,
                                  .begin = begin_gemma2,
                                  .finish = finish_gemma2};

const HuggingFaceKind kGemma3Kind{.name = "Gemma 3",
                                  .type = "gemma3_text",
                                  .architecture = "Gemma3ForCausalLM",
                                  .keys = gemma3_keys,
                                  .begin = begin_gemma3,
                                  .finish = finish_gemma3,
                                  .has_local_rope = true};

std::span<const HuggingFaceKind* const> gemma_kinds() {
  static constexpr const HuggingFaceKind* kKinds[] = {&kGemma2Kind, &kGemma3Kind};
  return kKinds;
}

HuggingFaceForm gemma_form(const ModelPlan& plan) {
  const HuggingFaceKind& kind = plan.config().attention.qk_norm ? kGemma3Kind : kGemma2Kind;
  check_form(kind, plan.config());
  HuggingFaceForm form{.kind = &kind};
  for (const ParameterPlan& parameter : plan.parameters()) {
    form.tensors.push_back(own_tensor(parameter));
  }
  return form;
}

}  // namespace trireme::model
