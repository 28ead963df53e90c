// Generates texts from a model, a token of each at a time, by temperature, top-k and top-p
// sampling. The keys and values of what was read are kept, so that each forward reads new tokens
// only.
#pragma once

#include <cstddef>
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
  // What the logits of tokens that the text has are divided by if positive, and multiplied with if
  // negative. 1: nothing.
  // Source: Keskar et al. 2019, arXiv:1909.05858, section 4.1
  double repetition_penalty = 1;
  int64_t texts_at_once = 16;  // of generate_texts()
  bool keeps_keys = true;      // false: each forward reads the whole text again
  int64_t decoder_start = 0;   // what a decoder reads first
};

// Draws a token from logits_V. `uniform` is the random number, in [0, 1).
// Shapes: logits_V [V] any float dtype -> token
// Source: top-p: Holtzman et al. 2020, arXiv:1904.09751
int64_t sample_token(const at::Tensor& logits_V, const GenerateOptions& options, double uniform);

// Continues `prompt` (at least one token) and returns the new tokens. Each sees the last
// sequence_length tokens before it; a longer text is read whole again for each of its tokens. With
// an encoder and a decoder, these read the prompt and the new tokens, of any number. Token
// i depends only on the seed, i and the tokens before it. `on_token` is called with each token as
// it is drawn.
// Throws: ConfigError when the prompt is empty or an option is out of range
std::vector<int64_t> generate(LanguageModel& model, std::span<const int64_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int64_t)>& on_token = {});

// What is to be done with a token of prompt `number` as it is drawn; false ends its text.
using OnToken = std::function<bool(size_t number, int64_t token)>;
// What is to be done with the new tokens of a prompt's text, once it has ended.
using OnText = std::function<void(size_t number, std::span<const int64_t> tokens)>;

// The same for many prompts, several at once: as one ends, the next begins. The texts are those
// that each prompt has alone, up to rounding, and prompt i draws with its own random numbers;
// prompt 0 with those of generate().
std::vector<std::vector<int64_t>> generate_texts(LanguageModel& model,
                                                 std::span<const std::vector<int64_t>> prompts,
                                                 const GenerateOptions& options,
                                                 const OnToken& on_token = {},
                                                 const OnText& on_text = {});

class TextModel;

// The same with the ranks that have a model's parts (text_model.h). Returns the texts of this
// rank's copy, with nothing for those of others. Every rank of a copy is told of its tokens, and
// must answer alike.
// Comm:       next_tokens() and num_groups()
// Collective: every rank, with the same prompts and options
std::vector<std::vector<int64_t>> generate_texts(TextModel& model,
                                                 std::span<const std::vector<int64_t>> prompts,
                                                 const GenerateOptions& options,
                                                 const OnToken& on_token = {},
                                                 const OnText& on_text = {});

}  // namespace trireme::model
