// A model small enough to compute in every way there is.
#pragma once

#include <string>

#include "trireme/model/family/model_config.h"

namespace trireme::model {

inline ModelConfig small_config(const std::string& family, double dropout) {
  const int64_t experts = family == "mixtral" ? 5 : 0;
  return {.family = family,
          .layers = 2,
          .width = 16,
          .heads = 4,
          .kv_heads = 4,
          .ffn_width = 24,
          .sequence_length = 8,
          .vocab_size = 11,
          .dropout = dropout,
          .sparse = {.experts = experts},
          .seq2seq = family == "t5" ? EncoderDecoderConfig{.decoder_layers = 2, .target_length = 8}
                                    : EncoderDecoderConfig{}};
}

}  // namespace trireme::model
