#include "trireme/parallel/pipeline/schedule/builders.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {
namespace {

constexpr double kRoundoff = 1e-9;

// Source: Qi et al. 2023, arXiv:2401.10241, table 2
TEST(ZeroBubble, H1LeavesTheBubbleOfItsFormulaInTheMemoryOf1F1B) {
  const StageCosts times[] = {{1, 1, 1}, {2, 2, 1}, {3, 4, 2}, {1.5, 1.25, 1}};
  for (const int p : {2, 4, 8}) {
    for (int m = p; m <= 64; m += 5) {
      for (const StageCosts& costs : times) {
        const ScheduleOptions options{
            .num_ranks = p, .num_microbatches = m, .costs = {.stages = {costs}}};
        const Schedule schedule = make_schedule("zero-bubble", options);
        const double bubble = make_timeline(schedule, options.costs).cost() - m * costs.total();
        EXPECT_NEAR(bubble,
                    (p - 1) * (costs.forward + costs.backward_input - costs.backward_weight),
                    kRoundoff * m)
            << p << ' ' << m;
        for (const PeakActivations& peak : peak_activations(schedule))
          EXPECT_LE(peak.until_weight, p);
      }
    }
  }
}

// ZB-H2: no bubble with equal times, and at most 2p - 1 microbatches.
TEST(ZeroBubble, TwiceTheMemoryLeavesNoBubbleWhenTimesAreEqual) {
  for (const int p : {2, 4, 8}) {
    const ScheduleOptions options{
        .num_ranks = p, .num_microbatches = 3 * p, .memory_limit = 2.0 * p};
    const Schedule schedule = make_schedule("zero-bubble", options);
    EXPECT_NEAR(make_timeline(schedule, options.costs).bubble(), 0, kRoundoff);
    for (const PeakActivations& peak : peak_activations(schedule))
      EXPECT_LE(peak.until_weight, 2 * p);
  }
}

TEST(ZeroBubble, MoreMemoryIsNeverSlower) {
  double before = 1;
  for (int limit = 6; limit <= 14; ++limit) {
    const ScheduleOptions options{
        .num_ranks = 6,
        .num_microbatches = 20,
        .costs = {.stages = {{2, 2, 1}}, .communication = 0.1, .kept_for_weight = 0.5},
        .memory_limit = static_cast<double>(limit)};
    const double bubble =
        make_timeline(make_schedule("zero-bubble", options), options.costs).bubble();
    EXPECT_LE(bubble, before + kRoundoff) << limit;
    before = bubble;
  }
  EXPECT_LT(before, 0.03);
}

// Source: Qi et al. 2023, arXiv:2401.10241, section 6
TEST(ZeroBubble, VLeavesNoBubbleInTheMemoryOf1F1BWhenTimesAreEqual) {
  for (const int p : {1, 2, 4, 8}) {
    for (int m = 2 * p; m <= 64; m += 3) {
      const ScheduleOptions options{.num_ranks = p, .num_microbatches = m};
      const Schedule schedule = make_schedule("zero-bubble-v", options);
      EXPECT_NEAR(make_timeline(schedule, options.costs).bubble(), 0, kRoundoff) << p << ' ' << m;
      // Two chunks of half a microbatch's activations, on every rank alike.
      for (const PeakActivations& peak : peak_activations(schedule))
        EXPECT_EQ(peak.until_weight, 2 * p);
    }
  }
}

TEST(ZeroBubble, VIsNearZeroWhenTimesDiffer) {
  const ScheduleOptions options{.num_ranks = 4,
                                .num_microbatches = 16,
                                .num_chunks = 2,
                                .costs = {.stages = {{1, 1.1, 0.9}}}};
  const double v = make_timeline(make_schedule("zero-bubble-v", options), options.costs).bubble();
  EXPECT_LT(v, 0.04);
}

TEST(ZeroBubble, UnevenStagesAreFilledToo) {
  const ScheduleOptions options{
      .num_ranks = 4,
      .num_microbatches = 12,
      .costs = {.stages = {{2, 2, 1}, {1, 1, 1}, {1, 2, 1}, {3, 3, 2}}, .communication = 0.2}};
  const Schedule split = make_schedule("zero-bubble", options);
  check_schedule(split);
  const Schedule whole = make_schedule("1f1b", options);
  EXPECT_LT(make_timeline(split, options.costs).cost(), make_timeline(whole, options.costs).cost());
}

TEST(ZeroBubble, TooLittleMemoryIsRefused) {
  for (const char* name : {"zero-bubble", "zero-bubble-v"}) {
    const ScheduleOptions options{.num_ranks = 4, .num_microbatches = 8, .memory_limit = 2};
    EXPECT_THROW(make_schedule(name, options), ConfigError) << name;
  }
}

}  // namespace
}  // namespace trireme::parallel
