#include "trireme/plan/step/step_prediction.h"

#include <gtest/gtest.h>

#include "trireme/parallel/pipeline/schedule/schedule_check.h"

namespace trireme::plan {
namespace {

// A first stage with an embedding, a last one with a head, and transfers.
parallel::PipelineCosts costs_of(int num_stages) {
  parallel::PipelineCosts costs{.stages = {}, .communication = 0.05};
  for (int stage = 0; stage < num_stages; ++stage) {
    const double more = stage == 0 ? 0.1 : stage + 1 == num_stages ? 0.3 : 0;
    costs.stages.push_back({.forward = 1 + more, .backward_input = 1 + more, .backward_weight = 1});
  }
  return costs;
}

TEST(PipelineTime, OfFewActionsIsThatOfTheTimeline) {
  const parallel::ScheduleOptions options{.num_ranks = 4, .num_microbatches = 8};
  const auto time = time_pipeline("1f1b", options, costs_of(4));
  ASSERT_TRUE(time);
  const parallel::Schedule schedule = parallel::make_schedule("1f1b", options);
  EXPECT_EQ(time->seconds, parallel::make_timeline(schedule, costs_of(4)).cost());
  EXPECT_EQ(time->held, (std::vector<double>{4, 3, 2, 1}));
}

// Later rounds take as long as the one before, so the extension is the whole timeline's time.
TEST(PipelineTime, AnExtensionIsTheWholeTimeline) {
  for (const char* const name : {"1f1b", "interleaved", "zero-bubble", "gpipe"}) {
    const int chunks = std::string(name) == "interleaved" ? 3 : 1;
    for (const int ranks : {1, 2, 4, 6}) {
      const parallel::ScheduleOptions options{
          .num_ranks = ranks, .num_microbatches = 24 * ranks, .num_chunks = chunks};
      const parallel::PipelineCosts costs = costs_of(ranks * chunks);
      const auto whole = time_pipeline(name, options, costs),
                 extended = time_pipeline(name, options, costs, /*most_actions=*/0);
      ASSERT_TRUE(whole && extended) << name;
      EXPECT_NEAR(extended->seconds / whole->seconds, 1, 1e-3) << name << " on " << ranks;
      ASSERT_EQ(extended->held.size(), whole->held.size());
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_NEAR(extended->held[rank], whole->held[rank], 1e-9) << name << " on " << ranks;
      }
    }
  }
}

TEST(PipelineTime, TheCostDoesNotGrowWithTheBatch) {
  const auto time =
      time_pipeline("1f1b", {.num_ranks = 16, .num_microbatches = 60000}, costs_of(16));
  ASSERT_TRUE(time);
  EXPECT_NEAR(time->seconds / 60000, 3.6, 0.01);  // the last stage is the slowest
}

TEST(PipelineTime, PipelinesWithTooManyActionsHaveNone) {
  EXPECT_FALSE(
      time_pipeline("1f1b", {.num_ranks = 4096, .num_microbatches = 16384}, costs_of(4096)));
}

}  // namespace
}  // namespace trireme::plan
