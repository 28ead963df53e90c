#include "trireme/model/likelihood.h"

#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/one_thread.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

constexpr int64_t kMost = 6;  // tokens of a sequence

class Likelihood : public testing::Test {
 protected:
  // Log p of each token of `text` behind those before it, from a forward of the whole.
  at::Tensor log_probabilities(const std::vector<int64_t>& text) {
    const at::NoGradGuard no_grad;
    const at::Tensor tokens_1T = at::tensor(text, at::kLong).unsqueeze(0);
    return at::log_softmax(model_->logits(tokens_1T).squeeze(0), 1);
  }

  std::vector<std::vector<TokenScore>> scores_of(const std::vector<AskedText>& texts) {
    std::vector<std::vector<TokenScore>> found(texts.size());
    std::vector<int> calls(texts.size());
    score_texts(*make_text_model(*model_), texts, [&](size_t number, auto scores) {
      found[number].assign(scores.begin(), scores.end());
      ++calls[number];
    });
    EXPECT_EQ(calls, std::vector<int>(texts.size(), 1));
    return found;
  }

  // The tokens from `first` on, each seen in the window that begins at `begin`.
  void expect_window(const std::vector<int64_t>& text, size_t begin, size_t first, size_t end,
                     std::span<const TokenScore> scores) {
    const std::vector<int64_t> read(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                    text.begin() + static_cast<std::ptrdiff_t>(end));
    const at::Tensor log_p_TV = log_probabilities(read);
    for (size_t token = first; token <= end; ++token) {
      const at::Tensor row_V = log_p_TV[static_cast<int64_t>(token - 1 - begin)];
      const TokenScore& score = scores[token - first];
      EXPECT_NEAR(score.log_probability, row_V[text[token]].item<double>(), 1e-12);
      EXPECT_EQ(score.likeliest, row_V.argmax().item<int64_t>());
      EXPECT_NEAR(score.likeliest_log_probability, row_V.max().item<double>(), 1e-12);
      EXPECT_EQ(score.is_likeliest(), score.likeliest == text[token]);
    }
  }

  harness::OneThread one_thread_;
  std::unique_ptr<LanguageModel> model_ = make_model({.layers = 2,
                                                      .width = 12,
                                                      .heads = 3,
                                                      .kv_heads = 3,
                                                      .ffn_width = 16,
                                                      .sequence_length = kMost,
                                                      .vocab_size = 19},
                                                     5, at::kDouble);
};

TEST_F(Likelihood, TokensOfSeveralTextsHaveTheProbabilitiesOfTheirLogits) {
  const std::vector<AskedText> texts = {
      {{1, 2, 3}}, {{4, 5, 6, 7, 8, 9, 10}, 3}, {{3}}, {{2, 11}, 2}, {{0, 18}}};
  const auto found = scores_of(texts);
  EXPECT_EQ(found[0].size(), 2u);
  EXPECT_EQ(found[1].size(), 4u);
  EXPECT_TRUE(found[2].empty() && found[3].empty());
  expect_window(texts[0].tokens, 0, 1, 2, found[0]);
  expect_window(texts[1].tokens, 0, 3, 6, found[1]);
  expect_window(texts[4].tokens, 0, 1, 1, found[4]);
}

TEST_F(Likelihood, WhatIsLongerThanASequenceIsReadInPieces) {
  std::vector<int64_t> text;
  for (int64_t i = 0; i < 16; ++i) text.push_back((i * i + 3) % 19);
  // From the first token on: pieces of a sequence each, the last as near to its end as possible.
  auto found = scores_of({{text}}).front();
  ASSERT_EQ(found.size(), 15u);
  const std::span<const TokenScore> all(found);
  expect_window(text, 0, 1, 6, all.subspan(0, 6));
  expect_window(text, 6, 7, 12, all.subspan(6, 6));
  expect_window(text, 9, 13, 15, all.subspan(12, 3));
  // Of a prompt that is too long, the last tokens are read.
  found = scores_of({{text, 14}}).front();
  expect_window(text, 9, 14, 15, found);
}

TEST_F(Likelihood, ManyTextsAreReadInSeveralForwards) {
  std::vector<AskedText> texts(kTokensAtOnce / kMost + 20, {{1, 2, 3, 4, 5, 6, 7}});
  texts.back().tokens = {7, 8, 9};
  const auto found = scores_of(texts);
  EXPECT_EQ(found.front()[5].log_probability, found[texts.size() - 2][5].log_probability);
  expect_window(texts.back().tokens, 0, 1, 2, found.back());
}

}  // namespace
}  // namespace trireme::model
