#include "trireme/model/generate.h"

#include <algorithm>

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

}  // namespace
}  // namespace trireme::model
