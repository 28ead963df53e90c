#include "trireme/parallel/pipeline/schedule/schedule_check.h"

#include <gtest/gtest.h>

#include "trireme/parallel/pipeline/schedule/builders.h"

namespace trireme::parallel {
namespace {

using K = ActionKind;

TEST(Dependencies, AForwardNeedsTheStagesThatFeedIt) {
  Schedule schedule = gpipe(3, 1);
  schedule.edges = {{0, 1}, {0, 2}, {1, 2}};
  Completion completion(schedule, 0.5);
  EXPECT_EQ(completion.ready_time({K::kForward, 0, 0}), 0);
  EXPECT_FALSE(completion.is_ready({K::kForward, 2, 0}));
  completion.finish({K::kForward, 0, 0}, 1);
  EXPECT_TRUE(completion.is_done({K::kForward, 0, 0}));
  EXPECT_EQ(completion.ready_time({K::kForward, 1, 0}), 1.5);
  EXPECT_FALSE(completion.is_ready({K::kForward, 2, 0}));
  completion.finish({K::kForward, 1, 0}, 2.5);
  EXPECT_EQ(completion.ready_time({K::kForward, 2, 0}), 3);
}

TEST(Dependencies, ABackwardNeedsItsForwardAndTheStagesItFeeds) {
  const Schedule schedule = interleaved(1, 2, 1);  // both stages on one rank
  Completion completion(schedule, 0.5);
  EXPECT_FALSE(completion.is_ready({K::kBackward, 1, 0}));
  completion.finish({K::kForward, 1, 0}, 2);
  EXPECT_EQ(completion.ready_time({K::kBackward, 1, 0}), 2);
  completion.finish({K::kForward, 0, 0}, 1);
  EXPECT_FALSE(completion.is_ready({K::kBackwardInput, 0, 0}));
  completion.finish({K::kBackwardInput, 1, 0}, 4);
  EXPECT_EQ(completion.ready_time({K::kBackwardInput, 0, 0}), 4);  // nothing travels
  EXPECT_FALSE(completion.is_ready({K::kBackwardWeight, 0, 0}));
  EXPECT_EQ(completion.ready_time({K::kBackwardWeight, 1, 0}), 4);
}

}  // namespace
}  // namespace trireme::parallel
