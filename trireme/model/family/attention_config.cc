#include "trireme/model/family/attention_config.h"

#include "trireme/base/error.h"
#include "trireme/model/family/config.h"

namespace trireme::model {

void check_attention(const ModelConfig& config) {
  const AttentionConfig& attention = config.attention;
  if (!attention.is_latent()) {
    TRIREME_CHECK(attention.q_lora_rank == 0, "model.q_lora_rank is ", attention.q_lora_rank,
                  " and model.kv_lora_rank 0, so that attention has no latents; set "
                  "model.kv_lora_rank");
    TRIREME_CHECK(config.head_width() % 2 == 0, "model.heads = ", config.heads,
                  " makes heads of odd width ", config.head_width(),
                  "; expected an even model.width / model.heads (rotary positions turn pairs): "
                  "change one of them, or set model.head_width");
    TRIREME_CHECK(config.heads * config.head_width() <= kMaxWidth, "model.heads x head_width is ",
                  config.heads * config.head_width(), "; expected at most ", kMaxWidth,
                  ": lower one of them");
    return;
  }
  TRIREME_CHECK(!attention.attention_bias && attention.head_width == 0, "model.attention_bias is ",
                attention.attention_bias, ", model.head_width ", attention.head_width,
                " and model.kv_lora_rank ", attention.kv_lora_rank,
                "; latent attention has widths of its own and no biases: set them to false and 0");
  TRIREME_CHECK(!attention.qk_norm, "model.qk_norm is true and model.kv_lora_rank ",
                attention.kv_lora_rank,
                "; latent attention has norms of its own: set model.qk_norm to false");
  TRIREME_CHECK(config.kv_heads == config.heads, "model.kv_heads is ", config.kv_heads,
                " and model.heads ", config.heads,
                "; latent attention makes keys and values for every head: set model.kv_heads to ",
                config.heads);
  TRIREME_CHECK(attention.qk_rope_width % 2 == 0, "model.qk_rope_width is ",
                attention.qk_rope_width,
                "; expected an even width (rotary positions turn pairs): change it");
}

}  // namespace trireme::model
