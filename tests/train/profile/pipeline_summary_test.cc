#include "trireme/train/profile/profile_report.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using parallel::Schedule;
using Time = std::chrono::steady_clock::time_point;

const Schedule kSchedule =
    parallel::make_schedule("gpipe", {.num_ranks = 2, .num_microbatches = 2});

// A rank whose actions took as long as the schedule says, in seconds, in each of two steps.
RankProfile rank_of(int rank, int place, double seconds) {
  RankProfile profile{.rank = rank};
  profile.pipeline_rank = place;
  profile.groups = {{"data", {0, 1}}, {"pipeline", {0, 2}}};
  const parallel::Timeline timeline = make_timeline(kSchedule, {.stages = {{seconds, seconds, 0}}});
  for (int step = 0; step < 2; ++step) {
    parallel::PipelineProfile& run = profile.pipeline_runs.emplace_back();
    run.begin = Time(std::chrono::seconds(100 * step));
    run.actions = timeline.ranks[static_cast<size_t>(place)];
    run.waiting = std::chrono::seconds(1);
  }
  return profile;
}

CallSpan message(const char* operation, int peer, int tag, Span time) {
  return {.operation = operation,
          .group = 1,
          .time = time,
          .is_background = true,
          .is_point_to_point = true,
          .peer = peer,
          .tag = tag};
}

TEST(PipelineSummary, IsTheMeanOfThePipelinesAndSteps) {
  const std::vector<RankProfile> ranks = {rank_of(0, 0, 1), rank_of(1, 0, 3), rank_of(2, 1, 1),
                                          rank_of(3, 1, 3)};
  const PipelineSummary summary = summarize_pipeline(ranks, kSchedule);
  EXPECT_EQ(summary.num_pipelines, 2);
  ASSERT_EQ(summary.times.stages.size(), 2u);
  EXPECT_DOUBLE_EQ(summary.times.stages[1].forward, 2);
  EXPECT_DOUBLE_EQ(summary.times.step, 12);  // of 6 and 18
  EXPECT_DOUBLE_EQ(summary.times.bubble, 1.0 / 3);
  EXPECT_DOUBLE_EQ(summary.times.waiting[0], 1);
  EXPECT_TRUE(summary.moving.empty());
  EXPECT_DOUBLE_EQ(summary.last_run.cost(), 6);  // that of rank 0
  const std::string drawing = draw(summary);
  EXPECT_NE(drawing.find("gpipe, 2 stages, 2 microbatches, measured"), std::string::npos);
  EXPECT_NE(drawing.find("</svg>"), std::string::npos);
}

TEST(PipelineSummary, AMessageMovesFromWhenBothEndsAreThere) {
  std::vector<RankProfile> ranks = {rank_of(0, 0, 1), rank_of(2, 1, 1)};
  ranks[0].calls = {message("send", 1, 7, {100, 900}), message("send", 1, 7, {1000, 1300}),
                    message("recv", 1, 8, {50, 2200})};
  ranks[1].calls = {message("recv", 0, 7, {600, 900}),   // the sender waited
                    message("recv", 0, 7, {900, 1200}),  // the receiver waited until 1000
                    message("send", 0, 8, {2000, 2200}),
                    {.operation = "all_reduce", .group = 0, .time = {0, 5000}}};
  const PipelineSummary summary = summarize_pipeline(ranks, kSchedule);
  ASSERT_EQ(summary.moving.size(), 2u);
  EXPECT_DOUBLE_EQ(summary.moving[0], 200e-9 / 2);  // of two steps
  EXPECT_DOUBLE_EQ(summary.moving[1], 500e-9 / 2);
}

TEST(PipelineSummary, SaysNothingOfMessagesThatWereForgottenOrGoBetweenHosts) {
  std::vector<RankProfile> ranks = {rank_of(0, 0, 1), rank_of(2, 1, 1)};
  ranks[0].calls = {message("send", 1, 7, {100, 900})};
  ranks[1].calls = {message("recv", 0, 7, {600, 900})};
  EXPECT_FALSE(summarize_pipeline(ranks, kSchedule).moving.empty());
  ranks[1].num_lost_calls = 1;
  EXPECT_TRUE(summarize_pipeline(ranks, kSchedule).moving.empty());
  ranks[1].num_lost_calls = 0;
  ranks[1].groups[1].world_ranks = {2};
  EXPECT_TRUE(summarize_pipeline(ranks, kSchedule).moving.empty());
}

}  // namespace
}  // namespace trireme::train
