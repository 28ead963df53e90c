// Generates text from a model, one token at a time, by temperature, top-k and top-p sampling.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/model/model.h"

namespace trireme::model {

struct GenerateOptions {
  int64_t max_tokens = 200;
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 0;         // only the k likeliest tokens; 0: all
  double top_p = 1.0;  // only the fewest likeliest tokens that together reach this probability
  uint64_t seed = 0;
  std::vector<int64_t> stop_tokens{};  // drawing one ends the text; it is not returned
  int64_t vocab_limit = 0;  // tokens from this one on are never drawn (padded vocabulary); 0: none
};

// Draws a token from logits_V. `uniform` is the random number, in [0, 1).
// Shapes: logits_V [V] any float dtype -> token
// Source: top-p: Holtzman et al. 2020, arXiv:1904.09751
int64_t sample_token(const at::Tensor& logits_V, const GenerateOptions& options, double uniform);

// Continues `prompt` (at least one token) and returns the new tokens. Each forward sees the last
// sequence_length tokens. Token i depends only on the seed, i and the tokens before it. `on_token`
// is called with each token as it is drawn.
// Throws: ConfigError when the prompt is empty or an option is out of range
std::vector<int64_t> generate(LanguageModel& model, std::span<const int64_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int64_t)>& on_token = {});

}  // namespace trireme::model
