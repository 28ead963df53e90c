// Text out of a model, a token at a time: temperature, top-k and top-p sampling.
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
  double top_p = 1.0;        // only the likeliest tokens that together reach this probability
  uint64_t seed = 0;
  int64_t stop_token = -1;  // ends the text when drawn
  int64_t vocab_limit = 0;  // tokens from here on are never drawn (a padded vocabulary); 0: none
};

// The token drawn from logits_V with `uniform` in [0, 1).
// Shapes: logits_V [V] any float dtype -> token
// Source: top-p: Holtzman et al. 2020, arXiv:1904.09751
int64_t sample_token(const at::Tensor& logits_V, const GenerateOptions& options, double uniform);

// Continues `prompt` (at least one token); each forward sees the last sequence_length tokens. Token
// i depends on the seed, i and what came before alone. `on_token` hears each token as it is drawn.
std::vector<int64_t> generate(LanguageModel& model, std::span<const int64_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int64_t)>& on_token = {});

}  // namespace trireme::model
