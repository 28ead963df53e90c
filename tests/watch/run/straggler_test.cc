#include "trireme/watch/run/straggler.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

// Steps of four ranks: own seconds as given; each step takes 0.1 s beyond the slowest.
RankBlocks ranks_with(const std::vector<float>& own, int64_t num_steps = 3) {
  RankBlock block{.num_ranks = static_cast<int64_t>(own.size()),
                  .columns = {"step_seconds", "own_seconds"}};
  float slowest = 0;
  for (const float each : own) slowest = std::max(slowest, each);
  for (int64_t step = 1; step <= num_steps; ++step) {
    block.steps.push_back(step);
    for (const float each : own) {
      block.values.push_back(slowest + 0.1F);
      block.values.push_back(each);
    }
  }
  RankBlocks ranks;
  ranks.add(std::move(block));
  return ranks;
}

TEST(Straggler, WithoutASlowRankAStepTakesWhatItsPeersNeed) {
  const RankBlocks ranks = ranks_with({1, 1, 1, 2});
  const auto slow = without_rank(ranks, {}, 3, 100);
  EXPECT_NEAR(slow->step_seconds, 2.1, 1e-6);
  EXPECT_NEAR(slow->without, 1.1, 1e-6);
  EXPECT_EQ(slow->num_steps, 3);
  EXPECT_NEAR(without_rank(ranks, {}, 0, 100)->without, 2.1, 1e-6);
}

TEST(Straggler, PeersAreThoseOfTheStage) {
  const RankBlocks ranks = ranks_with({1, 1, 3, 4});
  const auto slow = without_rank(ranks, {0, 0, 1, 1}, 3, 100);
  EXPECT_NEAR(slow->without, 3.1, 1e-6);
  // Alone in its stage: the median of all others.
  EXPECT_NEAR(without_rank(ranks, {0, 0, 0, 1}, 3, 100)->without, 3.1, 1e-6);
}

TEST(Straggler, NothingIsKnownOfStrangersAndOfRunsWithoutNumbers) {
  const RankBlocks ranks = ranks_with({1, 2});
  EXPECT_FALSE(without_rank(ranks, {}, 2, 100));
  EXPECT_FALSE(without_rank(ranks, {}, -1, 100));
  EXPECT_FALSE(without_rank(ranks, {}, 0, 0));
  EXPECT_FALSE(without_rank(RankBlocks(), {}, 0, 100));
  EXPECT_FALSE(without_rank(ranks_with({NAN, 2}), {}, 0, 100));
  EXPECT_FALSE(without_rank(ranks_with({2}), {}, 0, 100));
}

TEST(Straggler, TheSlowestOfItsStageIsFoundAmongThoseThatTrain) {
  const auto slow = find_straggler(ranks_with({1, 1, 1, 2}), {}, 4);
  ASSERT_TRUE(slow);
  EXPECT_EQ(slow->rank, 3);
  EXPECT_NEAR(slow->ratio, 2, 1e-6);
  EXPECT_FALSE(find_straggler(ranks_with({1, 1, 1, 2}), {}, 3));
  EXPECT_FALSE(find_straggler(ranks_with({1, 1, 2, 2}), {0, 0, 1, 1}, 4));
  EXPECT_FALSE(find_straggler(ranks_with({1, 1, 1.1F}), {}, 3));
  EXPECT_FALSE(find_straggler(ranks_with({0, 0, 0}), {}, 3));
  EXPECT_FALSE(find_straggler(RankBlocks(), {}, 3));
}

TEST(Straggler, MediansByStage) {
  EXPECT_EQ(stage_medians({1, 2, 3, 10}, {0, 0, 0, 1}), (std::vector<double>{2, 2, 2, 10}));
  EXPECT_TRUE(std::isnan(stage_medians({NAN}, {0})[0]));
}

}  // namespace
}  // namespace trireme::watch
