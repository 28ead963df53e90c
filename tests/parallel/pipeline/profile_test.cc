#include "trireme/parallel/pipeline/profile.h"

#include <gtest/gtest.h>

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
