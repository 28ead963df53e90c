#include "trireme/model/generate.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

const at::Tensor kLogits =
    at::tensor({1.0f, 3.0f, 2.0f, 0.0f}).log();  // probabilities 1/6 1/2 1/3 0

TEST(SampleToken, TemperatureZeroTakesTheLikeliest) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0}, 0.99), 1);
}

TEST(SampleToken, DrawsByProbabilityFromTheLikeliestDown) {
  const GenerateOptions plain{.temperature = 1};
  EXPECT_EQ(sample_token(kLogits, plain, 0.49), 1);
  EXPECT_EQ(sample_token(kLogits, plain, 0.51), 2);
  EXPECT_EQ(sample_token(kLogits, plain, 0.84), 0);
}

TEST(SampleToken, TopKAndTopPCutTheTail) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 1, .top_k = 1}, 0.99), 1);
  EXPECT_EQ(sample_token(kLogits, {.temperature = 1, .top_k = 2}, 0.99), 2);
  EXPECT_EQ(sample_token(kLogits, {.temperature = 1, .top_p = 0.5}, 0.99), 1);
  EXPECT_EQ(sample_token(kLogits, {.temperature = 1, .top_p = 0.6}, 0.99), 2);
}

TEST(SampleToken, PaddedVocabularyIsNeverDrawn) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0, .vocab_limit = 1}, 0.5), 0);
}

TEST(Generate, DependsOnTheSeedAloneAndOutlivesTheSequenceLength) {
  const ModelConfig config{.layers = 1,
                           .width = 8,
                           .heads = 2,
                           .kv_heads = 2,
                           .ffn_width = 8,
                           .sequence_length = 4,
                           .vocab_size = 11};
  const auto model = make_model(config, 1, at::kFloat);
  const std::vector<int64_t> prompt = {1, 2};
  const auto run = [&](uint64_t seed) {
    return generate(*model, prompt, {.max_tokens = 12, .seed = seed});
  };
  EXPECT_EQ(run(1).size(), 12u);
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
  EXPECT_THROW(generate(*model, {}, {}), ConfigError);
  // Each stop token ends the text before it.
  const std::vector<int64_t> all = run(1);
  for (const size_t at : {size_t{0}, size_t{5}}) {
    const auto cut =
        generate(*model, prompt, {.max_tokens = 12, .seed = 1, .stop_tokens = {10000, all[at]}});
    const auto first = std::ranges::find(all, all[at]);
    EXPECT_EQ(cut, std::vector<int64_t>(all.begin(), first));
  }
}

class GenerateTexts : public testing::Test {
 protected:
  std::unique_ptr<LanguageModel> model_ = make_model({.layers = 2,
                                                      .width = 16,
                                                      .heads = 4,
                                                      .kv_heads = 2,
                                                      .ffn_width = 24,
                                                      .sequence_length = 48,
                                                      .vocab_size = 31},
                                                     3, at::kDouble);
  std::vector<std::vector<int64_t>> prompts_ = {{1}, {2, 3, 4, 5}, {6, 7}, {8}, {9, 9, 9}};
};

// Some outlive the sequence length of 48.
TEST_F(GenerateTexts, EachTextIsTheOneThatItsPromptHasAlone) {
  GenerateOptions options{.max_tokens = 60, .temperature = 0};
  std::vector<std::vector<int64_t>> alone;
  for (const auto& prompt : prompts_) {
    options.keeps_keys = false;
    alone.push_back(generate(*model_, prompt, options));
    options.keeps_keys = true;
    EXPECT_EQ(generate(*model_, prompt, options), alone.back());
  }
  for (const int64_t at_once : {1, 2, 16}) {
    options.texts_at_once = at_once;
    EXPECT_EQ(generate_texts(*model_, prompts_, options), alone);
  }
}

TEST_F(GenerateTexts, PromptsDrawWithRandomNumbersOfTheirOwn) {
  const std::vector<std::vector<int64_t>> same(3, {1, 2});
  const GenerateOptions options{.max_tokens = 30, .temperature = 1, .seed = 5};
  const auto texts = generate_texts(*model_, same, options);
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_NE(texts[1], texts[2]);
  EXPECT_EQ(texts[0], generate(*model_, same[0], options));
}

TEST_F(GenerateTexts, ACallerEndsATextAndOthersGoOn) {
  std::map<size_t, int> seen;
  const auto texts = generate_texts(
      *model_, prompts_, {.max_tokens = 9, .texts_at_once = 2},
      [&](size_t number, int64_t) { return ++seen[number] < static_cast<int>(2 + number); });
  for (size_t i = 0; i < prompts_.size(); ++i) EXPECT_EQ(texts[i].size(), 2 + i);
}

TEST_F(GenerateTexts, APenaltyMakesRepetitionRarer) {
  const auto different = [&](double penalty) {
    const auto text = generate(*model_, prompts_[1],
                               {.max_tokens = 20, .temperature = 0, .repetition_penalty = penalty});
    return std::set<int64_t>(text.begin(), text.end()).size();
  };
  EXPECT_LT(different(1), 20u);
  EXPECT_EQ(different(1e6), 20u);  // a token of the text has no chance against the 31
  EXPECT_THROW(generate(*model_, prompts_[0], {.repetition_penalty = 0}), ConfigError);
}

}  // namespace
}  // namespace trireme::model
