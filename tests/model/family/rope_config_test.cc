#include "trireme/model/family/rope_config.h"

#include <cmath>
#include <functional>
#include <numbers>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"
#include "trireme/model/family/model_config.h"

namespace trireme::model {
namespace {

using testing::DoubleEq;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kWidth = 8, kLength = 64;
constexpr double kBase = 100;

// How many times slower each frequency is than a plain one.
std::vector<double> stretches(const RopeConfig& config, int64_t length = kLength) {
  const RopeFrequencies scaled = rope_frequencies(config, kBase, kWidth, length);
  std::vector<double> result;
  for (size_t i = 0; i < scaled.frequencies.size(); ++i) {
    result.push_back(std::pow(kBase, -2 * static_cast<double>(i) / kWidth) / scaled.frequencies[i]);
  }
  return result;
}

TEST(RopeConfig, LinearStretchesAllFrequencies) {
  EXPECT_THAT(stretches({.rope_scaling = RopeScaling::kLinear, .rope_factor = 3}),
              Each(testing::DoubleNear(3, 1e-12)));
}

TEST(RopeConfig, DynamicStretchesTheSlowestByTheLengthsOnly) {
  const RopeConfig config{
      .rope_scaling = RopeScaling::kDynamic, .rope_factor = 2, .rope_original_length = 32};
  EXPECT_THAT(stretches(config, 32), Each(DoubleEq(1)));
  EXPECT_THAT(stretches(config, 8), Each(DoubleEq(1)));
  const std::vector<double> longer = stretches(config, 64);
  EXPECT_DOUBLE_EQ(longer[0], 1);
  // 2 * 64 / 32 - 1, to the power of (R / (R - 2)) times the last exponent, (R - 2) / R
  EXPECT_NEAR(longer[3], 3, 1e-12);
}

// The fastest turns 64 / (2 pi) = 10.2 times, the slowest 0.32 times.
TEST(RopeConfig, Llama3KeepsFastFrequenciesAndStretchesSlowOnes) {
  const std::vector<double> found = stretches({.rope_scaling = RopeScaling::kLlama3,
                                               .rope_factor = 8,
                                               .rope_original_length = kLength,
                                               .rope_low_factor = 1,
                                               .rope_high_factor = 4});
  EXPECT_DOUBLE_EQ(found[0], 1);
  const double turns = kLength / std::sqrt(10.0) / (2 * std::numbers::pi);
  const double kept = (turns - 1) / 3;
  EXPECT_NEAR(found[1], 1 / ((1 - kept) / 8 + kept), 1e-12);
  EXPECT_NEAR(found[2], 1 / ((1 - 0.0062) / 8 + 0.0062), 1e-2);
  EXPECT_NEAR(found[3], 8, 1e-12);
}

TEST(RopeConfig, YarnKeepsStretchesAndScalesTheScores) {
  RopeConfig config{.rope_scaling = RopeScaling::kYarn,
                    .rope_factor = 4,
                    .rope_original_length = kLength,
                    .rope_beta_fast = 8,
                    .rope_beta_slow = 0.5};
  const std::vector<double> found = stretches(config);
  EXPECT_DOUBLE_EQ(found[0], 1);
  EXPECT_GT(found[1], 1);
  EXPECT_NEAR(found[3], 4, 1e-12);
  const auto factor = [&] {
    return rope_frequencies(config, kBase, kWidth, kLength).attention_factor;
  };
  EXPECT_DOUBLE_EQ(factor(), 0.1 * std::log(4) + 1);
  EXPECT_DOUBLE_EQ(rope_score_factor(config), 1);
  config.rope_mscale = 1;
  config.rope_mscale_all_dim = 0.5;
  EXPECT_DOUBLE_EQ(factor(), (0.1 * std::log(4) + 1) / (0.05 * std::log(4) + 1));
  EXPECT_DOUBLE_EQ(rope_score_factor(config), std::pow(0.05 * std::log(4) + 1, 2));
  config.rope_attention_factor = 1.5;
  EXPECT_EQ(factor(), 1.5);
}

TEST(RopeConfig, LongRopeHasFactorsForShortAndForLongSequences) {
  const RopeConfig config{.rope_scaling = RopeScaling::kLongRope,
                          .rope_factor = 4,
                          .rope_original_length = 64,
                          .rope_short_factors = "1, 1.25,1,2",
                          .rope_long_factors = "1,2,3,4"};
  EXPECT_THAT(stretches(config, 64),
              testing::Pointwise(testing::DoubleNear(1e-12), {1.0, 1.25, 1.0, 2.0}));
  EXPECT_THAT(stretches(config, 65),
              testing::Pointwise(testing::DoubleNear(1e-12), {1.0, 2.0, 3.0, 4.0}));
  EXPECT_DOUBLE_EQ(rope_frequencies(config, kBase, kWidth, 8).attention_factor,
                   std::sqrt(1 + std::log(4) / std::log(64)));
}

TEST(RopeConfig, AListOfFactorsIsNumbersAboveZero) {
  EXPECT_THAT(rope_factors("1,2.5, 3e-1"), ElementsAre(1, 2.5, 0.3));
  for (const char* text : {"", "1,,2", "1,-2", "0", "1;2", "nan", "inf", "1e999", "1,x"}) {
    EXPECT_THAT(rope_factors(text), IsEmpty()) << text;
  }
}

std::string refusal(const std::function<void(ModelConfig&)>& change) {
  ModelConfig config{.layers = 1, .width = 32, .heads = 2, .kv_heads = 2, .vocab_size = 8};
  change(config);
  return harness::message_of<ConfigError>([&] { validate(config); });
}

TEST(RopeConfig, SaysWhichKeysDoNotGoTogether) {
  EXPECT_THAT(refusal([](auto& c) { c.rope.rope_factor = 2; }),
              HasSubstr("model.rope_factor is 2"));
  EXPECT_THAT(refusal([](auto& c) { c.rope.rotary_share = 0.45; }), HasSubstr("turns 7"));
  EXPECT_THAT(refusal([](auto& c) { c.rope.rope_local_base = 50; }), HasSubstr("model.window 0"));
  EXPECT_THAT(refusal([](auto& c) { c.rope.rope_local_base = 0.5; }),
              HasSubstr("model.rope_local_base = 0.5"));
  EXPECT_THAT(refusal([](auto& c) { c.rope.rope_long_factors = "1"; }), HasSubstr("\"longrope\""));
  EXPECT_THAT(refusal([](auto& c) {
                c.rope.rope_scaling = RopeScaling::kLongRope;
                c.rope.rope_short_factors = "1,2";
              }),
              HasSubstr("model.rope_short_factors has 2 numbers above 0; expected 8"));
  EXPECT_THAT(refusal([](auto& c) {
                c.rope = {.rope_scaling = RopeScaling::kLlama3, .rope_low_factor = 4};
              }),
              HasSubstr("model.rope_high_factor is 4"));
  EXPECT_THAT(refusal([](auto& c) {
                c.rope = {
                    .rope_scaling = RopeScaling::kLinear, .rope_factor = 2, .rope_beta_fast = 3};
              }),
              HasSubstr("model.rope_beta_fast is 3"));
  EXPECT_THAT(refusal([](auto& c) { c.rope.rope_attention_factor = 2; }),
              HasSubstr("model.rope_attention_factor is 2"));
  EXPECT_THAT(refusal([](auto& c) {
                c.sequence_length = 1;
                c.rope = {.rope_scaling = RopeScaling::kLongRope,
                          .rope_factor = 2,
                          .rope_short_factors = "1,1,1,1,1,1,1,1",
                          .rope_long_factors = "1,1,1,1,1,1,1,1"};
              }),
              HasSubstr("at least 2"));
  EXPECT_THAT(refusal([](auto& c) {
                c.family = "gpt2";
                c.rope.rope_factor = 4;
              }),
              HasSubstr("gpt2 learns its positions"));
  EXPECT_THAT(refusal([](auto& c) {
                c.family = "gpt2";
                c.rope.rope_scaling = RopeScaling::kYarn;
              }),
              HasSubstr("gpt2 learns its positions"));
}

}  // namespace
}  // namespace trireme::model
