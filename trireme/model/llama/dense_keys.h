// The keys of config.json that classes of Llama's relatives share, with or without experts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trireme/model/family/hugging_face_form.h"

namespace trireme::model {

using Keys = std::vector<HuggingFaceKey>;

void append(Keys& keys, Keys more);

// Keys that all classes have. The parameters are the values assumed when two of them are missing.
Keys plain_keys(double missing_epsilon = 1e-6, double missing_base = 1e4);

// With rotary positions, of whole heads.
Keys common_keys(double missing_epsilon = 1e-6, double missing_base = 1e4);

// missing_kv_heads: what the class assumes without the key; 0: as many as heads, as for null.
Keys dense_keys(int64_t missing_kv_heads = 0, int64_t missing_head_width = 0);

// Of all four projections of attention.
HuggingFaceKey biases_key(bool missing);

// Sets what a class assumes without the key.
// keys: have one of that name
void assume(Keys& keys, std::string_view name, HuggingFaceValue value);

// Keys of classes whose layers all have full attention.
Keys full_attention_keys(int64_t missing_kv_heads = 0);

}  // namespace trireme::model
