#include "trireme/cli/profile_table.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

train::ProfileReport example() {
  return {.first_step = 6,
          .last_step = 8,
          .ranks = {{0, 30'000'000, 24'000'000, 300'000, 5'400'000, 3'000'000, 300'000, 9'000'000,
                     3'600'000},
                    {1, 30'000'000, 27'000'000, 0, 3'000'000, 0, 0, 6'000'000, 3'000'000}},
          .calls = {{"all_reduce", "data", true, 12, 12 << 20, 12'000'000, 3'000'000}},
          .operators = {{"aten::mm", 600, 40'800'000, 4'080'000'000},
                        {"a_kernel_with_a_name_that_goes_on_and_on_and_ends<float>", 6, 6000, 0}},
          .bound = train::Bound::kComputation,
          .reason = "matrix products take 80 % of the computing time",
          .slowdown = 1.25,
          .trace = "run/profile/trace.json"};
}

std::string text_of(const train::ProfileReport& report) {
  std::string text;
  for (const std::string& line : profile_table(report)) text += line + "\n";
  return text;
}

TEST(ProfileTable, ReadsLikeThis) {
  const std::vector<std::string> lines = profile_table(example());
  const std::vector<std::string> expected = {
      "profile steps 6 to 8, 1.25 times as long as those before",
      "  rank    ms/step  computing    data  communication    (waiting)    idle  hidden",
      "     0      10.00     80.0 %   1.0 %         18.0 %       10.0 %   1.0 %    40 %",
      "     1      10.00     90.0 %   0.0 %         10.0 %        0.0 %   0.0 %    50 %",
      "  calls (per step and rank)                      number  bytes each         ms    waiting   "
      " "
      "GB/s",
      "  all_reduce of data, background                    2.0     1.0 MiB      2.000      0.500   "
      " "
      "1.40",
      "  operators (per step and rank)                  number   computing         ms    GFLOP/s",
      "  aten::mm                                        100.0      80.0 %      6.800      100.0",
      "  a_kernel_with_a_name...d_on_and_ends<float>       1.0       0.0 %      0.001",
      "  hidden behind computing: 44 % of the communication",
      "  bound by computation: matrix products take 80 % of the computing time",
      "  trace run/profile/trace.json, open it at https://ui.perfetto.dev"};
  EXPECT_EQ(lines, expected);
}

TEST(ProfileTable, OfManyRanksShowsThoseThatOthersWaitFor) {
  train::ProfileReport report = example();
  report.ranks.clear();
  for (int rank = 0; rank < 100; ++rank) {
    report.ranks.push_back({.rank = rank, .steps_ns = 1000, .late_ns = (rank + 58) % 100});
  }
  const std::string text = text_of(report);
  EXPECT_NE(text.find("\n    42  "), std::string::npos) << text;
  EXPECT_NE(text.find("\n    49  "), std::string::npos);
  EXPECT_EQ(text.find("\n    50  "), std::string::npos);
  EXPECT_NE(text.find("and 92 ranks that wait longer"), std::string::npos);
}

TEST(ProfileTable, EndsWithThePipeline) {
  train::ProfileReport report = example();
  const size_t without = profile_table(report).size();
  train::PipelineSummary& pipeline = report.pipeline.emplace();
  pipeline.schedule = parallel::make_schedule("1f1b", {.num_ranks = 2, .num_microbatches = 4});
  pipeline.times.stages = {{0.1, 0.2, 0}, {0.1, 0.2, 0}};
  pipeline.times.stage_shares = {0.5, 0.5};
  pipeline.times.waiting = {0, 0};
  pipeline.num_pipelines = 3;
  pipeline.drawing = "run/profile/pipeline.svg";
  const std::vector<std::string> lines = profile_table(report);
  ASSERT_EQ(lines.size(), without + 7);
  EXPECT_EQ(lines[without], "pipeline 1f1b, 4 microbatches per step, mean of 3 pipelines");
  EXPECT_EQ(lines.back(), "  step 8 drawn in run/profile/pipeline.svg");
}

TEST(ProfileTable, LeavesOutWhatThereWasNot) {
  train::ProfileReport report = example();
  report.calls.clear();
  EXPECT_NE(text_of(report).find("calls are not recorded"), std::string::npos);
  report.ranks = {{.rank = 0, .steps_ns = 1000, .computing_ns = 1000}};
  report.slowdown = 0;
  const std::string text = text_of(report);
  EXPECT_EQ(text.find("times as long"), std::string::npos);
  EXPECT_EQ(text.find("calls"), std::string::npos);
  EXPECT_EQ(text.find("hidden behind"), std::string::npos);
  report.num_lost_calls = 3;
  EXPECT_NE(text_of(report).find("3 calls were too many"), std::string::npos);
}

}  // namespace
}  // namespace trireme::cli
