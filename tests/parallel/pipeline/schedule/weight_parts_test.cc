#include "trireme/parallel/pipeline/schedule/builders.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using K = ActionKind;

// One rank, whose next forward is always ready.
Schedule one_rank(int num_microbatches) {
  Schedule order{.name = "test",
                 .num_microbatches = num_microbatches,
                 .rank_of_stage = {0},
                 .edges = {},
                 .actions = {{}}};
  for (int i = 0; i < num_microbatches; ++i) {
    order.actions[0].push_back({K::kForward, 0, i});
    order.actions[0].push_back({K::kBackwardInput, 0, i});
  }
  return order;
}

TEST(WeightParts, ComeLastWhereNothingWaits) {
  const Schedule filled =
      fill_weight_parts({one_rank(2)}, {.num_microbatches = 2, .num_chunks = 1, .memory_limit = 2});
  const std::vector<Action> expected = {{K::kForward, 0, 0},        {K::kBackwardInput, 0, 0},
                                        {K::kForward, 0, 1},        {K::kBackwardInput, 0, 1},
                                        {K::kBackwardWeight, 0, 0}, {K::kBackwardWeight, 0, 1}};
  EXPECT_EQ(filled.actions[0], expected);
}

TEST(WeightParts, MakeRoomForTheNextForward) {
  const Schedule filled =
      fill_weight_parts({one_rank(2)}, {.num_microbatches = 2, .num_chunks = 1, .memory_limit = 1});
  const std::vector<Action> expected = {{K::kForward, 0, 0},        {K::kBackwardInput, 0, 0},
                                        {K::kBackwardWeight, 0, 0}, {K::kForward, 0, 1},
                                        {K::kBackwardInput, 0, 1},  {K::kBackwardWeight, 0, 1}};
  EXPECT_EQ(filled.actions[0], expected);
}

TEST(WeightParts, HoldOnlyTheirShareOfTheActivations) {
  ScheduleOptions options{.num_microbatches = 2, .num_chunks = 1, .memory_limit = 1.5};
  options.costs.kept_for_weight = 0.5;
  const Schedule filled = fill_weight_parts({one_rank(2)}, options);
  EXPECT_EQ(filled.actions[0][2], (Action{K::kForward, 0, 1}));
  EXPECT_EQ(activation_change({K::kForward}, 0.5), 1);
  EXPECT_EQ(activation_change({K::kBackwardInput}, 0.25), -0.75);
  EXPECT_EQ(activation_change({K::kBackwardWeight}, 0.25), -0.25);
  EXPECT_EQ(activation_change({K::kBackward}, 0.25), -1);
  EXPECT_EQ(activation_change({K::kSendGradient}, 0.25), 0);
}

TEST(WeightParts, AnOrderThatNeedsMoreMemoryIsLeftOut) {
  Schedule greedy = one_rank(2);
  std::swap(greedy.actions[0][1], greedy.actions[0][2]);  // both forwards first
  const ScheduleOptions options{.num_microbatches = 2, .num_chunks = 1, .memory_limit = 1};
  EXPECT_EQ(fill_weight_parts({greedy, one_rank(2)}, options),
            fill_weight_parts({one_rank(2)}, options));
  EXPECT_THROW(fill_weight_parts({greedy}, options), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
