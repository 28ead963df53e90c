#include "trireme/model/llama/dense_keys.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/model/family/hugging_face_mapping.h"
#include "trireme/model/keys/hugging_face_rope.h"
#include "trireme/model/keys/hugging_face_window.h"

namespace trireme::model {

void append(Keys& keys, Keys more) { std::ranges::move(more, std::back_inserter(keys)); }

Keys plain_keys(double missing_epsilon, double missing_base) {
  Keys keys = {
      mapped("vocab_size", &ModelConfig::vocab_size), mapped("hidden_size", &ModelConfig::width),
      mapped("num_hidden_layers", &ModelConfig::layers),
      mapped("num_attention_heads", &ModelConfig::heads), fixed("hidden_act", std::string("silu")),
      length_key(), mapped("rms_norm_eps", &ModelConfig::norm_epsilon, always(missing_epsilon)),
      mapped("rope_theta", &ModelConfig::rope_base, always(missing_base)),
      written("attention_dropout", 0.0), fixed("mlp_bias", false),
      mapped("tie_word_embeddings", &ModelConfig::tied_embedding, always(false)),
      // Written by programs that read the same files, and only ever false in them.
      expected("rope_interleaved", false), expected("use_mrope", false),
      ignored("is_llama_config")};
  return keys;
}

Keys common_keys(double missing_epsilon, double missing_base) {
  Keys keys = plain_keys(missing_epsilon, missing_base);
  append(keys, rope_keys());
  keys.push_back(expected("partial_rotary_factor", 1.0));
  return keys;
}

Keys dense_keys(int64_t missing_kv_heads, int64_t missing_head_width) {
  Keys keys = common_keys();
  HuggingFaceKey kv_heads = mapped("num_key_value_heads", &ModelConfig::kv_heads);
  kv_heads.null = [](const ModelConfig& config) -> HuggingFaceValue { return config.heads; };
  kv_heads.missing = missing_kv_heads > 0 ? always(missing_kv_heads) : kv_heads.null;
  append(keys, {mapped("intermediate_size", &ModelConfig::ffn_width), std::move(kv_heads),
                head_width_key(missing_head_width)});
  return keys;
}

HuggingFaceKey biases_key(bool missing) {
  return {.name = "attention_bias",
          .value = [](const ModelConfig& config) -> HuggingFaceValue {
            return config.attention.attention_bias && config.attention.attention_output_bias;
          },
          .take =
              [](const JsonView& found, HuggingFaceModel& model) {
                AttentionConfig& attention = model.config.attention;
                attention.attention_bias = attention.attention_output_bias = found.boolean();
              },
          .missing = always(missing)};
}

void assume(Keys& keys, std::string_view name, HuggingFaceValue value) {
  const auto found = std::ranges::find(keys, name, &HuggingFaceKey::name);
  TRIREME_ASSERT(found != keys.end(), "no key ", name);
  found->missing = always(std::move(value));
}

Keys full_attention_keys(int64_t missing_kv_heads) {
  Keys keys = dense_keys(missing_kv_heads);
  append(keys, {ignored("max_window_layers"), layer_types_key()});
  return keys;
}

}  // namespace trireme::model
