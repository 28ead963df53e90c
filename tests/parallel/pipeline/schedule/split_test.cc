#include "trireme/parallel/pipeline/schedule/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

constexpr double kSplitRoundoff = 1e-9;

struct Score {
  double slowest = std::numeric_limits<double>::infinity();
  double squares = std::numeric_limits<double>::infinity();
};

Score score_of(const std::vector<LayerCost>& layers, const std::vector<int>& counts,
               const SplitOptions& options) {
  Score score{0, 0};
  size_t begin = 0;
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    LayerCost sum{0, 0, 0};
    for (size_t i = begin; i < begin + counts[stage]; ++i) {
      sum = {sum.time + layers[i].time, sum.memory + layers[i].memory,
             sum.activations + layers[i].activations};
    }
    const double held = options.held_microbatches.empty() ? 0 : options.held_microbatches[stage];
    if (sum.memory + held * sum.activations > options.memory_limit) return {};
    score.slowest = std::max(score.slowest, sum.time);
    score.squares += sum.time * sum.time;
    begin += counts[stage];
  }
  return score;
}

// Tries every split.
Score brute_force(const std::vector<LayerCost>& layers, const SplitOptions& options,
                  std::vector<int> counts = {}, int used = 0) {
  const auto stages_left = options.num_stages - static_cast<int>(counts.size());
  const int left = static_cast<int>(layers.size()) - used;
  if (stages_left == 1) {
    counts.push_back(left);
    return score_of(layers, counts, options);
  }
  Score best;
  for (int count = 1; count <= left - (stages_left - 1); ++count) {
    std::vector<int> next = counts;
    next.push_back(count);
    const Score score = brute_force(layers, options, next, used + count);
    const bool better =
        score.slowest < best.slowest * (1 - kSplitRoundoff) ||
        (score.slowest <= best.slowest * (1 + kSplitRoundoff) && score.squares < best.squares);
    if (better) best = score;
  }
  return best;
}

TEST(Split, EqualLayersAreCutEvenlyTheLongerStagesFirst) {
  const std::vector<LayerCost> layers(7);
  EXPECT_EQ(split_layers(layers, {.num_stages = 3}), (std::vector<int>{3, 2, 2}));
  EXPECT_EQ(split_layers(layers, {.num_stages = 7}), std::vector<int>(7, 1));
  EXPECT_EQ(split_layers(layers, {.num_stages = 1}), std::vector<int>{7});
}

TEST(Split, AHeavyHeadTakesFewerLayersWithIt) {
  std::vector<LayerCost> layers(8);
  layers.back().time = 3;
  EXPECT_EQ(split_layers(layers, {.num_stages = 2}), (std::vector<int>{5, 3}));
}

TEST(Split, StagesThatHoldMoreMicrobatchesTakeFewerLayers) {
  const std::vector<LayerCost> layers(8, {.time = 1, .memory = 1, .activations = 1});
  // 1F1B holds p - s microbatches on stage s.
  const SplitOptions options{.num_stages = 2, .memory_limit = 10, .held_microbatches = {2, 1}};
  EXPECT_EQ(split_layers(layers, options), (std::vector<int>{3, 5}));
}

TEST(Split, IsTheBestOfAllSplits) {
  std::mt19937_64 random(7);
  const auto number = [&](double most) {
    return std::uniform_real_distribution<double>(0, most)(random);
  };
  int refused = 0;
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<LayerCost> layers(1 + random() % 9);
    const bool whole = random() % 2 == 0;  // many ties
    for (LayerCost& layer : layers) {
      layer = {whole ? std::floor(number(4)) : number(4), number(2), number(1)};
    }
    SplitOptions options{.num_stages = static_cast<int>(1 + random() % layers.size())};
    if (random() % 2 == 0) options.memory_limit = 1 + number(8);
    if (random() % 2 == 0) {
      for (int stage = 0; stage < options.num_stages; ++stage)
        options.held_microbatches.push_back(options.num_stages - stage);
    }
    const Score expected = brute_force(layers, options);
    try {
      const std::vector<int> counts = split_layers(layers, options);
      const Score actual = score_of(layers, counts, options);
      EXPECT_NEAR(actual.slowest, expected.slowest, kSplitRoundoff) << trial;
      EXPECT_NEAR(actual.squares, expected.squares, kSplitRoundoff * (1 + expected.squares))
          << trial;
    } catch (const ConfigError&) {
      EXPECT_EQ(expected.slowest, std::numeric_limits<double>::infinity()) << trial;
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(Split, ManyLayersOnManyStagesAreSplit) {
  std::vector<LayerCost> layers(65536);
  layers.back().time = 2.7;
  for (const int num_stages : {64, 2048}) {
    const std::vector<int> counts = split_layers(layers, {.num_stages = num_stages});
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), 65536);
    EXPECT_LE(*std::ranges::max_element(counts) - counts.back(), 3);
  }
}

TEST(Split, WhatIsTooLargeToWeighIsRefused) {
  std::vector<LayerCost> layers(65536);
  layers.back().time = 2.7;
  EXPECT_THROW(split_layers(layers, {.num_stages = 32768}), ConfigError);
}

TEST(Split, SaysHowMuchMemoryIsMissing) {
  const std::vector<LayerCost> layers(4, {.time = 1, .memory = 3});
  try {
    split_layers(layers, {.num_stages = 2, .memory_limit = 5});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    for (const char* word : {"4 layers", "2 stages", "needs 6", "1 more"})
      EXPECT_NE(what.find(word), std::string::npos) << what;
  }
}

TEST(Split, WrongNumbersAreRefused) {
  const std::vector<LayerCost> layers(2);
  EXPECT_THROW(split_layers(layers, {.num_stages = 3}), ConfigError);
  EXPECT_THROW(split_layers(layers, {.num_stages = 0}), ConfigError);
  EXPECT_THROW(split_layers(layers, {.num_stages = 2, .held_microbatches = {1}}), ConfigError);
  const std::vector<LayerCost> negative(2, {.time = -1});
  EXPECT_THROW(split_layers(negative, {.num_stages = 1}), ConfigError);
}

TEST(Split, RebalancesWhatIsUnevenBeyondTheThreshold) {
  const std::vector<int> counts = {4, 4};
  EXPECT_EQ(rebalance(counts, std::vector<double>{4, 12}, 0.1), (std::vector<int>{5, 3}));
  EXPECT_EQ(rebalance(counts, std::vector<double>{4, 4.2}, 0.1), counts);
  EXPECT_EQ(rebalance(counts, std::vector<double>{4, 12}, 0.9), counts);
  const std::vector<LayerCost> memory(8, {.time = 0, .memory = 1});
  EXPECT_EQ(rebalance(counts, std::vector<double>{4, 12}, 0.1, memory, {.memory_limit = 4}),
            counts);
  EXPECT_THROW(rebalance(counts, std::vector<double>{4}, 0.1), ConfigError);
}

TEST(Split, ByHandMustCoverTheModel) {
  const std::vector<LayerCost> six(6);
  const SplitOptions three{.num_stages = 3};
  EXPECT_EQ(split_by_hand({2, 1, 3}, six, three), (std::vector<int>{2, 1, 3}));
  EXPECT_THROW(split_by_hand({2, 1}, six, three), ConfigError);
  EXPECT_THROW(split_by_hand({2, 1, 1}, six, three), ConfigError);
  EXPECT_THROW(split_by_hand({3, 0, 3}, six, three), ConfigError);
}

TEST(Split, ByHandMustFitTheMemory) {
  const std::vector<LayerCost> layers(5, {.memory = 10, .activations = 4});
  SplitOptions options{.num_stages = 2, .memory_limit = 54, .held_microbatches = {2, 1}};
  EXPECT_EQ(split_by_hand({3, 2}, layers, options), (std::vector<int>{3, 2}));
  options.memory_limit = 53;
  EXPECT_THROW(split_by_hand({3, 2}, layers, options), ConfigError);
  EXPECT_EQ(split_by_hand({2, 3}, layers, options), (std::vector<int>{2, 3}));
}

}  // namespace
}  // namespace trireme::parallel
