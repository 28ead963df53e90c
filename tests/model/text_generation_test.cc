#include "trireme/model/text_generation.h"

#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

using Texts = std::map<size_t, std::vector<int64_t>>;

class TextGenerationTest : public testing::Test {
 protected:
  // Collects the tokens into `texts`, and the numbers of texts that have ended into `ended`.
  std::unique_ptr<TextGeneration> begin(const GenerateOptions& options, Texts& texts,
                                        std::vector<size_t>& ended) {
    return std::make_unique<TextGeneration>(
        *model_, prompts_, options,
        [&](size_t number, int64_t token) {
          texts[number].push_back(token);
          return true;
        },
        [&](size_t number, std::span<const int64_t> tokens) {
          EXPECT_EQ(std::vector<int64_t>(tokens.begin(), tokens.end()), texts[number]);
          ended.push_back(number);
        });
  }

  std::unique_ptr<LanguageModel> whole_ = make_model({.layers = 2,
                                                      .width = 16,
                                                      .heads = 4,
                                                      .kv_heads = 2,
                                                      .ffn_width = 24,
                                                      .sequence_length = 48,
                                                      .vocab_size = 31},
                                                     3, at::kDouble);
  std::unique_ptr<TextModel> model_ = make_text_model(*whole_);
  std::vector<std::vector<int64_t>> prompts_ = {{1}, {2, 3, 4, 5}, {6, 7}};
};

TEST_F(TextGenerationTest, AStepBringsATokenOfEachTextThatGrows) {
  Texts texts;
  std::vector<size_t> ended;
  const auto generation = begin({.max_tokens = 3, .texts_at_once = 2}, texts, ended);
  EXPECT_TRUE(generation->step());
  EXPECT_EQ(texts[0].size(), 1u);
  EXPECT_EQ(texts[1].size(), 1u);
  EXPECT_TRUE(texts[2].empty());
  while (generation->step()) {
  }
  EXPECT_EQ(ended.size(), 3u);
  EXPECT_FALSE(generation->step());
}

// Each with its own random numbers, keys and values, so that neither knows of the other; and one
// that stops half way leaves nothing behind.
TEST_F(TextGenerationTest, SeveralInTurnWriteTheTextsThatEachWritesAlone) {
  const GenerateOptions first{.max_tokens = 12, .temperature = 1, .seed = 3};
  const GenerateOptions second{.max_tokens = 9, .temperature = 0.5, .seed = 4};
  const auto expected_first = generate_texts(*whole_, prompts_, first);
  const auto expected_second = generate_texts(*whole_, prompts_, second);
  Texts one, two, left;
  std::vector<size_t> ended;
  const auto a = begin(first, one, ended);
  const auto b = begin(second, two, ended);
  auto gone = begin(first, left, ended);
  for (int i = 0; i < 20; ++i) {
    a->step();
    if (i < 3) gone->step();
    if (i == 3) gone.reset();
    b->step();
  }
  for (size_t i = 0; i < prompts_.size(); ++i) {
    EXPECT_EQ(one[i], expected_first[i]);
    EXPECT_EQ(two[i], expected_second[i]);
    EXPECT_EQ(left[i].size(), 3u);
  }
  EXPECT_EQ(ended.size(), 6u);
}

TEST_F(TextGenerationTest, NoTokensAreTextsThatEndAtOnce) {
  Texts texts;
  std::vector<size_t> ended;
  const auto generation = begin({.max_tokens = 0}, texts, ended);
  EXPECT_FALSE(generation->step());
  EXPECT_EQ(ended, (std::vector<size_t>{0, 1, 2}));
  EXPECT_FALSE(generation->step());
  EXPECT_EQ(ended.size(), 3u);
}

TEST_F(TextGenerationTest, WrongOptionsAreRefusedBeforeTheFirstStep) {
  Texts texts;
  std::vector<size_t> ended;
  EXPECT_THROW(begin({.top_p = 0}, texts, ended), ConfigError);
  prompts_.emplace_back();
  EXPECT_THROW(begin({}, texts, ended), ConfigError);
}

}  // namespace
}  // namespace trireme::model
