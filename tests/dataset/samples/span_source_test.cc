#include "trireme/dataset/samples/span_source.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/dataset/data.h"
#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/token_source.h"

namespace trireme::dataset {
namespace {

std::vector<int64_t> span_numbers(const NamedTensors& sample, const char* name) {
  const at::Tensor tensor = find_tensor(sample, name);
  const auto* const data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

// Its own code says that inputs of 512 tokens are of texts of 568, with 114 targets.
TEST(SpanLengths, AreThoseOfT5) {
  EXPECT_EQ(span_lengths(512, 0.15, 3),
            (SpanLengths{.text = 568, .noise = 85, .spans = 28, .inputs = 512, .targets = 114}));
  EXPECT_EQ(span_lengths(3, 0.15, 3),
            (SpanLengths{.text = 2, .noise = 1, .spans = 1, .inputs = 3, .targets = 3}));
  for (int64_t inputs = 3; inputs < 700; ++inputs) {
    for (const double share : {0.15, 0.5}) {
      const SpanLengths lengths = span_lengths(inputs, share, 3);
      EXPECT_EQ(lengths.inputs, inputs);
      EXPECT_EQ(lengths.noise, std::max(1.0, std::nearbyint(share * lengths.text))) << inputs;
      EXPECT_EQ(lengths.inputs + lengths.targets, lengths.text + 2 * (lengths.spans + 1));
    }
  }
}

TEST(SpanLengths, WhatHasNoTextIsRefused) {
  expect_config_error([] { span_lengths(2, 0.15, 3); },
                      {"model.sequence_length is 2", "at least 3"});
  // All but one token is taken out, so inputs always have three.
  expect_config_error([] { span_lengths(4, 1, 3); }, {"no text has inputs of that length"});
}

class SpanSamplesTest : public testing::Test {
 protected:
  SpanSamplesTest() { write_counting_file(prefix_, 1000); }

  SpanSamples spans(int64_t inputs, double share, double length) const {
    const SpanLengths lengths = span_lengths(inputs, share, length);
    return {std::make_shared<const TokenSource>(
                prefix_, TokenOptions{.sequence_length = lengths.text, .ahead = 0}),
            {.lengths = lengths, .sentinel = 2000, .end = 3000, .start = 4000}};
  }

  TemporaryFolder folder_;
  std::string prefix_ = folder_.path() / "text";
};

TEST_F(SpanSamplesTest, InputsAndTargetsTogetherAreTheText) {
  const SpanSamples samples = spans(60, 0.3, 2.5);
  const SpanLengths lengths = span_lengths(60, 0.3, 2.5);
  ASSERT_EQ(samples.size(), 1000 / lengths.text);
  for (int64_t index = 0; index < samples.size(); ++index) {
    const NamedTensors sample = samples.get(index, random_key(1, std::to_string(index)));
    const auto inputs = span_numbers(sample, "tokens"), targets = span_numbers(sample, "targets"),
               read = span_numbers(sample, "decoder_tokens");
    ASSERT_EQ(inputs.size(), 60U);
    ASSERT_EQ(targets.size(), static_cast<size_t>(lengths.targets));
    EXPECT_EQ(inputs.back(), 3000);
    EXPECT_EQ(targets.back(), 3000);
    // A decoder has read all targets before the one that it writes.
    EXPECT_EQ(read.front(), 4000);
    EXPECT_EQ(std::vector(read.begin() + 1, read.end()),
              std::vector(targets.begin(), targets.end() - 1));
    std::vector<int64_t> text;
    size_t next = 0;
    int64_t sentinel = 2000;
    for (const int64_t token : inputs) {
      if (token == 3000) continue;
      if (token != sentinel) {
        text.push_back(token);
        continue;
      }
      ASSERT_EQ(targets[next++], sentinel--);
      const size_t before = text.size();
      while (targets[next] < 1000) text.push_back(targets[next++]);
      EXPECT_GT(text.size(), before) << "an empty span";
    }
    EXPECT_EQ(2000 - sentinel, lengths.spans);
    EXPECT_LT(inputs.front(), 1000) << "a text begins with what stays";
    ASSERT_EQ(text.size(), static_cast<size_t>(lengths.text));
    for (size_t i = 0; i < text.size(); ++i) {
      EXPECT_EQ(text[i], index * lengths.text + static_cast<int64_t>(i));
    }
  }
}

// Five tokens in three spans: six ways, each within four standard deviations of a sixth.
TEST_F(SpanSamplesTest, AllWaysToCutAreEquallyLikely) {
  SpanSamples samples(
      std::make_shared<const TokenSource>(prefix_, TokenOptions{.sequence_length = 10, .ahead = 0}),
      {.lengths = {.text = 10, .noise = 5, .spans = 3, .inputs = 9, .targets = 9},
       .sentinel = 2000,
       .end = 3000});
  constexpr int kDraws = 3000;
  std::map<std::string, int> of_inputs, of_targets;
  const auto shape = [](const std::vector<int64_t>& tokens) {
    std::string text;
    for (const int64_t token : tokens) text += token < 1000 ? '.' : '|';
    return text;
  };
  for (int i = 0; i < kDraws; ++i) {
    const NamedTensors sample = samples.get(0, random_key(5, std::to_string(i)));
    ++of_inputs[shape(span_numbers(sample, "tokens"))];
    ++of_targets[shape(span_numbers(sample, "targets"))];
  }
  for (const auto& counts : {of_inputs, of_targets}) {
    EXPECT_EQ(counts.size(), 6U);
    for (const auto& [way, count] : counts) {
      EXPECT_NEAR(count, kDraws / 6.0, 4 * std::sqrt(kDraws * 5 / 36.0)) << way;
    }
  }
}

TEST_F(SpanSamplesTest, EpochsTakeOutOthersAndEvaluationsTheSame) {
  const SpanSamples samples = spans(40, 0.15, 3);
  const auto tokens = [&](std::optional<RandomKey> key) {
    return span_numbers(samples.get(0, key), "tokens");
  };
  EXPECT_NE(tokens(random_key(1, "0")), tokens(random_key(1, "20")));
  EXPECT_EQ(tokens({}), tokens({}));
  EXPECT_EQ(tokens({}), tokens(random_key(0, "data/spans/0")));
  EXPECT_EQ(samples.description(), "targets of 10, 15.9 % of the text in 2 spans");
}

}  // namespace
}  // namespace trireme::dataset
