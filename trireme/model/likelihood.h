// How likely texts are under a model, token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "trireme/model/text_model.h"

namespace trireme::model {

// A text of which the tokens from `first` on are asked. first: at least 1, because the first token
// of a text has nothing before it.
struct AskedText {
  std::vector<int64_t> tokens;
  size_t first = 1;
};

struct TokenScore {
  double log_probability = 0;  // in nats
  int64_t likeliest = 0;       // token in its place
  double likeliest_log_probability = 0;

  bool is_likeliest() const { return log_probability == likeliest_log_probability; }
};

// What is to be done with the scores of a text, one for each token that is asked, in their order.
using OnScores = std::function<void(size_t number, std::span<const TokenScore> scores)>;

// Scores texts of any length. Each token sees at most the sequence_length tokens before it: what is
// asked of a longer text is cut into pieces of sequence_length tokens from its first one on, each
// read in one forward that ends before the last token of its piece, as lm-evaluation-harness does.
// `on_scores` is called on every rank of the copy that has the text (TextModel::copy()).
// Collective: every rank, with the same texts
void score_texts(TextModel& model, std::span<const AskedText> texts, const OnScores& on_scores);

}  // namespace trireme::model
