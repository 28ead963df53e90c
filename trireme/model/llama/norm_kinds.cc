#include <utility>

#include "trireme/model/family/hugging_face_mapping.h"
#include "trireme/model/keys/hugging_face_rope.h"
#include "trireme/model/keys/hugging_face_window.h"
#include "trireme/model/llama/dense_keys.h"
#include "trireme/model/llama/llama_form.h"

namespace trireme::model {

// Classes whose branches have norms of their outputs.

namespace {

constexpr double kOlmo3Base = 5e5;

Keys olmo2_keys() {
  Keys keys = full_attention_keys();
  assume(keys, "rms_norm_eps", 1e-5);
  append(keys, {biases_key(/*missing=*/false), no_window_key()});
  return keys;
}

Keys olmo3_keys() {
  Keys keys = dense_keys();
  assume(keys, "rms_norm_eps", 1e-5);
  assume(keys, "rope_theta", kOlmo3Base);
  append(keys, {biases_key(/*missing=*/false), local_base_key(/*missing=*/kOlmo3Base)});
  append(keys, gemma_window_keys());
  return keys;
}

Keys glm4_keys() {
  Keys keys = plain_keys(/*missing_epsilon=*/1.5625e-7);
  append(keys, {mapped("intermediate_size", &ModelConfig::ffn_width),
                mapped("num_key_value_heads", &ModelConfig::kv_heads, always(int64_t{2})),
                head_width_key(/*missing_width=*/128)});
  append(keys, rope_keys());
  append(keys, {mapped("partial_rotary_factor", &RopeConfig::rotary_share, always(0.5)),
                mapped("attention_bias", &AttentionConfig::attention_bias, always(true)),
                ignored("max_window_layers"), layer_types_key(), no_window_key()});
  return keys;
}

void begin_glm4(HuggingFaceModel& model) {
  model.config.family = "llama";
  model.config.branch_norms = BranchNorms::kBoth;
}

void begin_olmo2(HuggingFaceModel& model) {
  model.config.family = "llama";
  model.config.branch_norms = BranchNorms::kAfter;
  model.config.attention.qk_norm = true;
  model.config.attention.qk_norm_over = QkNormOver::kAll;
}

void finish_olmo3(const JsonView& root, ModelConfig& config) {
  take_olmo3_window(root, config);
  if (config.attention.window == 0) config.rope.rope_local_base = 0;
}

}  // namespace

const HuggingFaceKind kOlmo2Kind{.name = "OLMo 2",
                                 .type = "olmo2",
                                 .architecture = "Olmo2ForCausalLM",
                                 .keys = olmo2_keys,
                                 .begin = begin_olmo2};
const HuggingFaceKind kOlmo3Kind{.name = "OLMo 3",
                                 .type = "olmo3",
                                 .architecture = "Olmo3ForCausalLM",
                                 .keys = olmo3_keys,
                                 .begin = begin_olmo2,
                                 .finish = finish_olmo3,
                                 .has_local_rope = true,
                                 .nests_local_rope = true};
const HuggingFaceKind kGlm4Kind{.name = "GLM-4",
                                .type = "glm4",
                                .architecture = "Glm4ForCausalLM",
                                .keys = glm4_keys,
                                .begin = begin_glm4};

}  // namespace trireme::model
