#include "trireme/cli/bench/bench_pipeline.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

TEST(BenchPipeline, ChunksDivideTheTimesOfARank) {
  const PipelineReport report = plan_pipeline({.schedule = "interleaved",
                                               .num_ranks = 4,
                                               .num_microbatches = 8,
                                               .milliseconds = {2, 4, 2}});
  EXPECT_EQ(report.num_chunks, 2);
  EXPECT_DOUBLE_EQ(report.ideal_milliseconds, 64);
  EXPECT_DOUBLE_EQ(report.step_milliseconds, 64 + 3 * 8 / 2.0);
  EXPECT_DOUBLE_EQ(report.bubble, 12.0 / 76);
  EXPECT_DOUBLE_EQ(report.formula_bubble.value(), 12.0 / 76);
  EXPECT_EQ(report.peak_until_backward, (std::vector<double>{5.5, 4.5, 3.5, 2.5}));
  EXPECT_EQ(report.transfers, 2 * 2 * 8);
}

TEST(BenchPipeline, ShowsTheTimelineAndItsNumbers) {
  const PipelineReport report =
      plan_pipeline({.schedule = "zero-bubble", .num_ranks = 2, .num_microbatches = 3});
  const std::string text = show_pipeline(report, 80, false);
  for (const char* part : {"zero-bubble, 2 stages, 3 microbatches",
                           "rank 1  ...F0-I0=", "I and W input and weight part",
                           "step    100 ms, without a bubble 90 ms",
                           "bubble  10.0 % of the step, by the formula 10.0 %",
                           "rank 1   10.0 %  1 until the backward, 2 until the weight part"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
  const PipelineReport delayed =
      plan_pipeline({.num_ranks = 2, .num_microbatches = 3, .communication_milliseconds = 1});
  EXPECT_NE(show_pipeline(delayed, 80, false).find("no formula"), std::string::npos);
}

TEST(BenchPipeline, TheListAndTheTableHaveWhatWasMeasured) {
  std::vector<PipelineReport> reports = {
      plan_pipeline({.num_ranks = 2, .num_microbatches = 3}),
      plan_pipeline({.schedule = "zero-bubble-v", .num_ranks = 2, .num_microbatches = 2})};
  reports[1].measured =
      MeasuredPipeline{.timeline = {}, .times = {}, .step_milliseconds = 77.5, .bubble = 0.125};
  const nlohmann::json list = nlohmann::json::parse(json_list(reports));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0]["schedule"], "1f1b");
  EXPECT_EQ(list[0]["chunks"], 1);
  EXPECT_DOUBLE_EQ(list[0]["formula_bubble"], 0.25);
  EXPECT_FALSE(list[0].contains("measured_bubble"));
  EXPECT_TRUE(list[1]["formula_bubble"].is_null());
  EXPECT_EQ(list[1]["measured_step_milliseconds"], 77.5);
  const std::string table = compare_pipelines(reports);
  EXPECT_NE(table.find("measured (ms)"), std::string::npos);
  EXPECT_NE(table.find("77.5     12.5 %\n"), std::string::npos) << table;
  EXPECT_EQ(compare_pipelines(std::span(reports).first(1)).find("measured"), std::string::npos);
}

// The stages sleep: however busy the machine, a run takes no less than the schedule says.
TEST(BenchPipeline, ARunFollowsTheSchedule) {
  const PipelineReport report = plan_pipeline({.schedule = "zero-bubble",
                                               .num_ranks = 3,
                                               .num_microbatches = 4,
                                               .milliseconds = {4, 4, 4}});
  const MeasuredPipeline measured = run_sleeping(report, 2);
  EXPECT_GE(measured.step_milliseconds, report.step_milliseconds);
  ASSERT_EQ(measured.timeline.ranks.size(), 3U);
  for (const auto& actions : measured.timeline.ranks) {
    EXPECT_EQ(actions.size(), 12U);
    for (const parallel::TimedAction& timed : actions) EXPECT_GE(timed.end - timed.start, 4);
  }
}

TEST(BenchPipeline, WhatTheScheduleCannotDoIsRefused) {
  EXPECT_ERROR(ConfigError, plan_pipeline({.schedule = "2f2b"}), "2f2b");
  EXPECT_ERROR(ConfigError, plan_pipeline({.schedule = "1f1b", .num_chunks = 2}), "expected 1");
}

}  // namespace
}  // namespace trireme::cli
