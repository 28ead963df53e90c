#include "trireme/parallel/pipeline/run/profile.h"

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::parallel {
namespace {

using K = ActionKind;

TEST(PipelineProfile, StageCostsAreMeansOverMicrobatches) {
  PipelineProfile profile;
  profile.actions = {{{K::kForward, 1, 0}, 0, 1},        {{K::kForward, 1, 1}, 1, 4},
                     {{K::kForward, 3, 0}, 4, 5},        {{K::kBackwardInput, 1, 0}, 5, 6},
                     {{K::kBackwardWeight, 1, 0}, 6, 8}, {{K::kBackward, 1, 1}, 8, 11}};
  const StageCosts costs = profile.stage_costs(1);
  EXPECT_EQ(costs.forward, 2);
  EXPECT_EQ(costs.backward_input, 2);
  EXPECT_EQ(costs.backward_weight, 1);
  EXPECT_EQ(profile.stage_costs(0).total(), 0);
}

TEST(PipelineProfile, EveryRankGetsAllProfiles) {
  harness::run_ranks(3, [](comm::Communicator& group) {
    PipelineProfile own;
    own.begin += std::chrono::seconds(group.rank());
    own.waiting = std::chrono::nanoseconds(5 + group.rank());
    own.bytes_sent = 7 + group.rank();
    own.peak = {.until_backward = group.rank(), .until_weight = 9};
    for (int i = 0; i < group.rank(); ++i)
      own.actions.push_back({{K::kBackwardInput, group.rank(), i}, 1.0 + i, 2.5 + i});
    const std::vector<PipelineProfile> all = gather_profiles(group, own);
    ASSERT_EQ(all.size(), 3u);
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(all[rank].begin.time_since_epoch(), std::chrono::seconds(rank));
      EXPECT_EQ(all[rank].waiting.count(), 5 + rank);
      EXPECT_EQ(all[rank].bytes_sent, 7 + rank);
      EXPECT_EQ(all[rank].peak, (PeakActivations{.until_backward = rank, .until_weight = 9}));
      ASSERT_EQ(all[rank].actions.size(), static_cast<size_t>(rank));
      for (int i = 0; i < rank; ++i) {
        EXPECT_EQ(all[rank].actions[i].action, (Action{K::kBackwardInput, rank, i}));
        EXPECT_EQ(all[rank].actions[i].end, 2.5 + i);
      }
    }
  });
}

TEST(PipelineProfile, RanksThatBeganLaterAreShiftedInTheMeasuredTimeline) {
  std::vector<PipelineProfile> profiles(2);
  profiles[0].begin = std::chrono::steady_clock::time_point(std::chrono::seconds(5));
  profiles[1].begin = profiles[0].begin + std::chrono::seconds(2);
  for (PipelineProfile& profile : profiles) profile.actions = {{{K::kForward, 0, 0}, 1, 2}};
  const Timeline timeline = measured_timeline(profiles);
  EXPECT_EQ(timeline.ranks[0][0].start, 1);
  EXPECT_EQ(timeline.ranks[1][0].start, 3);
  EXPECT_EQ(timeline.makespan(), 3);
}

}  // namespace
}  // namespace trireme::parallel
