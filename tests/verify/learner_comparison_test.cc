#include "trireme/verify/learner_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::verify {
namespace {

// What a learner's comparison finds: in each step rounding of an activation, a finding of a
// gradient, and rounding of a weight that all have in common.
Comparison of_learner(Finding gradient) {
  Comparison found{
      .left_out = {"late"}, .num_probes = 6, .num_steps = 2, .largest_rounding = 1e-15};
  for (const int64_t step : {1, 2}) {
    found.probes.push_back({.step = step,
                            .kind = ProbeKind::kActivation,
                            .name = "norm",
                            .finding = Finding::kRounding});
    found.probes.push_back(
        {.step = step, .kind = ProbeKind::kGradient, .name = "norm.weight", .finding = gradient});
    found.same.push_back({step, ProbeKind::kWeight, "learners.common.norm.weight"});
  }
  return found;
}

TEST(LearnerComparison, KeepsTheOrderOfAStepAndSaysWhoseAProbeIs) {
  const Comparison all = joined({of_learner(Finding::kRounding), of_learner(Finding::kBug)});
  EXPECT_EQ(all.num_probes, 12);
  EXPECT_EQ(all.num_steps, 2);
  EXPECT_EQ(all.largest_rounding, 1e-15);
  EXPECT_THAT(all.left_out, testing::ElementsAre("late"));
  std::vector<std::tuple<int64_t, ProbeKind, std::optional<int>>> order;
  for (const Probe& probe : all.probes) order.emplace_back(probe.step, probe.kind, probe.learner);
  const auto activation = ProbeKind::kActivation, gradient = ProbeKind::kGradient;
  EXPECT_THAT(order,
              testing::ElementsAre(std::tuple(1, activation, 0), std::tuple(1, activation, 1),
                                   std::tuple(1, gradient, 0), std::tuple(1, gradient, 1),
                                   std::tuple(2, activation, 0), std::tuple(2, activation, 1),
                                   std::tuple(2, gradient, 0), std::tuple(2, gradient, 1)));
  ASSERT_EQ(all.finding(), Finding::kBug);
  EXPECT_EQ(all.first()->learner, 1);
  for (const SameProbe& probe : all.same) EXPECT_FALSE(probe.learner);
}

TEST(LearnerComparison, IsNotProvedIfOneIsNot) {
  std::vector<Comparison> learners = {of_learner(Finding::kSame), of_learner(Finding::kSame)};
  learners[1].is_proved = false;
  EXPECT_FALSE(joined(learners).is_proved);
}

}  // namespace
}  // namespace trireme::verify
