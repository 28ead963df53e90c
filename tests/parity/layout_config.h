// The config that layouts are compared on, and words for its overrides.
#pragma once

#include <string>
#include <vector>

#include "tests/train/language_config.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

inline RunConfig config_of(const std::vector<Override>& overrides) {
  return parse_config(R"(
[model]
layers = 4
width = 24
heads = 6
kv_heads = 2
ffn_width = 25
sequence_length = 13
vocab_size = 37
[train]
global_batch = 8
micro_batch = 1
precision = "fp64"
)",
                      "layouts_test", overrides);
}

inline std::string describe(const std::vector<Override>& overrides) {
  std::string text;
  for (const auto& [key, value] : overrides) text += key + "=" + value + " ";
  return text;
}

}  // namespace trireme::train
