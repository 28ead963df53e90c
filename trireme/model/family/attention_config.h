// The forms of attention beside the plain one: keys of the [model] section.
#pragma once

#include <algorithm>
#include <cstdint>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"

namespace trireme::model {

struct ModelConfig;

struct AttentionConfig {
  TRIREME_KEYS_BEGIN(AttentionConfig)
  TRIREME_KEY(bool, qk_norm, false, kMustStay,
              "norms the queries and keys of each head, as Qwen3 does")
  TRIREME_KEY(bool, attention_bias, false, kMustStay,
              "adds biases to queries, keys and values, as Qwen2 does")
  TRIREME_KEY(int64_t, head_width, 0, kMustStay,
              "H: width of a head's queries, keys and values; 0 = width / heads",
              Range{0, kMaxWidth})
  TRIREME_KEY(int64_t, kv_lora_rank, 0, kMustStay,
              "width of the latent from which all heads make keys and values, as DeepSeek does; "
              "0 = they come from the residual stream",
              Range{0, kMaxWidth})
  TRIREME_KEY(int64_t, q_lora_rank, 0, kMustStay,
              "with kv_lora_rank: width of the queries' latent; 0 = none", Range{0, kMaxWidth})
  TRIREME_KEY(int64_t, qk_nope_width, 128, kMustStay,
              "with kv_lora_rank: what a head's queries and keys have without rotary positions",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, qk_rope_width, 64, kMustStay,
              "with kv_lora_rank: what they have with rotary positions; keys share it",
              Range{1, kMaxWidth})
  TRIREME_KEY(int64_t, v_head_width, 128, kMustStay, "with kv_lora_rank: width of a head's values",
              Range{1, kMaxWidth})
  TRIREME_KEYS_END()

  bool is_latent() const { return kv_lora_rank > 0; }
  int64_t qk_width() const { return qk_nope_width + qk_rope_width; }
  // The kernels have one width for queries, keys and values; the narrower ones are padded.
  int64_t core_width() const { return std::max(qk_width(), v_head_width); }
};

// Throws: ConfigError with the key, the value found and the value expected
void check_attention(const ModelConfig& config);

}  // namespace trireme::model
