#include "trireme/parallel/pipeline/run/profile.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {
namespace {

using Runs = std::vector<std::vector<PipelineProfile>>;

// A run that went as the schedule with these times; rank r waited for r + 1 seconds.
std::vector<PipelineProfile> run_of(const Schedule& schedule, const PipelineCosts& costs) {
  const Timeline timeline = make_timeline(schedule, costs);
  std::vector<PipelineProfile> profiles(timeline.ranks.size());
  for (size_t rank = 0; rank < profiles.size(); ++rank) {
    profiles[rank].actions = timeline.ranks[rank];
    profiles[rank].waiting = std::chrono::seconds(rank + 1);
    profiles[rank].bytes_sent = 10;
  }
  return profiles;
}

TEST(PipelineTimes, OfARunAsScheduledAreTheSchedules) {
  const Schedule schedule = make_schedule("1f1b", {.num_ranks = 4, .num_microbatches = 8});
  const Runs runs{run_of(schedule, {.stages = {{1, 2, 0}}})};
  const PipelineTimes times = pipeline_times(schedule, runs);
  EXPECT_DOUBLE_EQ(times.step, 33);
  EXPECT_DOUBLE_EQ(times.bubble, 3.0 / 11);  // (p - 1) / (m + p - 1)
  EXPECT_DOUBLE_EQ(times.schedule_bubble, 3.0 / 11);
  EXPECT_DOUBLE_EQ(times.even_bubble, 3.0 / 11);
  ASSERT_EQ(times.stages.size(), 4u);
  for (size_t stage = 0; stage < 4; ++stage) {
    EXPECT_DOUBLE_EQ(times.stages[stage].forward, 1);
    EXPECT_DOUBLE_EQ(times.stages[stage].backward_input, 2);
    EXPECT_DOUBLE_EQ(times.stage_shares[stage], 24.0 / 33);
    EXPECT_DOUBLE_EQ(times.waiting[stage], 1.0 + static_cast<double>(stage));
    EXPECT_EQ(times.bytes_sent[stage], 10);
  }
}

// A transfer takes time that no stage has: only the measured bubble knows it. A slow stage is in
// the schedule's bubble too, but not in that of even stages.
TEST(PipelineTimes, TellWhatTheScheduleAndWhatUnevenStagesExplain) {
  const Schedule schedule = make_schedule("gpipe", {.num_ranks = 2, .num_microbatches = 4});
  const Runs even{run_of(schedule, {.stages = {{1, 1, 0}}, .communication = 1})};
  const PipelineTimes waited = pipeline_times(schedule, even);
  EXPECT_DOUBLE_EQ(waited.bubble, 4.0 / 12);  // rank 0: 4 forwards, 1 there, 2, 1 back, 4 backwards
  EXPECT_DOUBLE_EQ(waited.schedule_bubble, 2.0 / 10);
  EXPECT_DOUBLE_EQ(waited.even_bubble, 2.0 / 10);
  const Runs uneven{run_of(schedule, {.stages = {{1, 1, 0}, {3, 3, 0}}})};
  const PipelineTimes slow = pipeline_times(schedule, uneven);
  EXPECT_DOUBLE_EQ(slow.schedule_bubble, slow.bubble);
  EXPECT_DOUBLE_EQ(slow.schedule_bubble, 2.0 / 26);  // the slow rank waits 1 at either end
  EXPECT_DOUBLE_EQ(slow.even_bubble, 2.0 / 10);
  EXPECT_DOUBLE_EQ(slow.stage_shares[0], 8.0 / 26);
  EXPECT_DOUBLE_EQ(slow.stage_shares[1], 24.0 / 26);
}

TEST(PipelineTimes, AreMeansOverTheRunsAndOfEachStageOfARank) {
  const Schedule schedule =
      make_schedule("interleaved", {.num_ranks = 2, .num_microbatches = 2, .num_chunks = 2});
  const std::vector runs{
      run_of(schedule, {.stages = {{1, 1, 0}, {1, 1, 0}, {2, 2, 0}, {1, 1, 0}}}),
      run_of(schedule, {.stages = {{3, 3, 0}, {1, 1, 0}, {2, 2, 0}, {1, 1, 0}}})};
  const PipelineTimes times = pipeline_times(schedule, runs);
  EXPECT_DOUBLE_EQ(times.stages[0].forward, 2);
  EXPECT_DOUBLE_EQ(times.stages[2].total(), 4);
  EXPECT_EQ(times.bytes_sent, (std::vector<int64_t>{10, 10}));
  EXPECT_THROW(pipeline_times(schedule, Runs()), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
