#include "trireme/watch/series/rank_blocks.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

// Two ranks, two columns: value = 100 step + 10 rank + column.
RankBlock block_of(int64_t first, int64_t count) {
  RankBlock block{.num_ranks = 2, .columns = {"own_seconds", "tokens"}};
  for (int64_t step = first; step < first + count; ++step) {
    block.steps.push_back(step);
    for (int rank = 0; rank < 2; ++rank) {
      for (int column = 0; column < 2; ++column)
        block.values.push_back(static_cast<float>(100 * step + 10 * rank + column));
    }
  }
  return block;
}

TEST(RankBlocks, FindsAStepsValuesAndARanksSeries) {
  RankBlocks ranks;
  ranks.add(block_of(1, 4));
  ranks.add(block_of(5, 4));
  EXPECT_EQ(ranks.values_at("tokens", 6)->values, (std::vector<float>{601, 611}));
  EXPECT_EQ(ranks.values_at("tokens", 100)->step, 8);
  EXPECT_EQ(ranks.values_at("tokens", 0)->step, 1);
  EXPECT_FALSE(ranks.values_at("none", 1));
  const Points one = *ranks.points("own_seconds", 1, {.from = 2, .to = 3});
  EXPECT_EQ(one.mean, (std::vector<double>{210, 310}));
  const Points all = *ranks.points("own_seconds", std::nullopt, {.most = 4});
  EXPECT_EQ(all.min[0], 100);
  EXPECT_EQ(all.max[0], 210);
  EXPECT_EQ(all.mean[0], 155);
  EXPECT_FALSE(ranks.points("own_seconds", 2, {}));
  EXPECT_EQ(ranks.some_steps(3), (std::vector<int64_t>{1, 4, 8}));
}

TEST(RankBlocks, ARunThatGoesBackReplacesSteps) {
  RankBlocks ranks;
  ranks.add(block_of(1, 4));
  ranks.add(block_of(5, 4));
  ranks.add(block_of(3, 1));
  EXPECT_EQ(ranks.some_steps(10), (std::vector<int64_t>{1, 2, 3}));
  RankBlocks same;
  same.add(block_of(1, 3));
  EXPECT_EQ(ranks.num_bytes(), same.num_bytes());
}

TEST(RankBlocks, BlocksThatDoNotFitThemselvesAreLeftOut) {
  RankBlocks ranks;
  RankBlock shorter = block_of(1, 4), back = block_of(1, 4), none = block_of(1, 1);
  shorter.values.pop_back();
  back.steps[2] = 1;
  none.num_ranks = 0;
  for (const RankBlock& block : {shorter, back, none}) ranks.add(block);
  EXPECT_EQ(ranks.num_ranks(), 0);
}

TEST(RankBlocks, BlocksOfOneStepAreKeptLikeLargerOnes) {
  RankBlocks ranks(20'000);
  for (int64_t step = 1; step <= 6400; ++step) {
    ranks.add(block_of(step, 1));
    ASSERT_LE(ranks.num_bytes(), 20'000u);
  }
  const Points points = *ranks.points("own_seconds", 1, {.most = 1});
  EXPECT_EQ(points.min[0], 110);
  EXPECT_EQ(points.max[0], 640010);
  EXPECT_EQ(ranks.values_at("tokens", 6400)->values, (std::vector<float>{640001, 640011}));
}

TEST(RankBlocks, NamesOfColumnsCountAsMemory) {
  RankBlocks ranks(20'000);
  for (int64_t step = 1; step <= 1000; ++step) {
    RankBlock block{.num_ranks = 1, .columns = {std::string(64, step % 2 == 0 ? 'a' : 'b')}};
    block.steps = {step};
    block.values = {1};
    ranks.add(block);
  }
  EXPECT_LE(ranks.some_steps(1000).size(), 20'000u / 64);
}

TEST(RankBlocks, OldStepsBecomeCoarserAndKeepTheirExtremes) {
  RankBlocks ranks(20'000);
  for (int64_t first = 1; first <= 6400; first += 64) {
    ranks.add(block_of(first, 64));
    ASSERT_LE(ranks.num_bytes(), 20'000u);
  }
  EXPECT_EQ(ranks.last_step(), 6400);
  EXPECT_EQ(ranks.values_at("tokens", 6400)->values, (std::vector<float>{640001, 640011}));
  RankBlocks two(1300);
  two.add(block_of(1, 32));
  two.add(block_of(33, 32));
  const Points points = *two.points("own_seconds", 1, {.most = 1});
  EXPECT_EQ(points.min[0], 110);
  EXPECT_EQ(points.max[0], 6410);
}

}  // namespace
}  // namespace trireme::watch
