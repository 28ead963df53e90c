#include "trireme/cli/profile_table.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(PipelineTable, HasALineAStageAndTheBubble) {
  const parallel::Schedule schedule =
      parallel::make_schedule("1f1b", {.num_ranks = 2, .num_microbatches = 4});
  const parallel::PipelineTimes times{.stages = {{0.0125, 0.025, 0}, {0.1, 0.15, 0.05}},
                                      .stage_shares = {0.5, 0.955},
                                      .waiting = {0.2, 0.01},
                                      .bytes_sent = {1, 1},
                                      .step = 1,
                                      .bubble = 0.25,
                                      .schedule_bubble = 0.2,
                                      .even_bubble = 0.125};
  const std::vector<std::string> expected = {
      "  stage  rank  computing  forward ms  backward ms  waiting ms  moving ms",
      "      0     0     50.0 %      12.500       25.000     200.000      1.500",
      "      1     1     95.5 %     100.000      200.000      10.000      0.250",
      "  forward and backward of a microbatch; waiting and moving of a rank's whole step",
      "  bubble 25.0 %; of the schedule with these times 20.0 %, with even stages 12.5 %"};
  EXPECT_EQ(pipeline_table(schedule, times, {0.0015, 0.00025}), expected);
  EXPECT_EQ(pipeline_table(schedule, times)[1],
            "      0     0     50.0 %      12.500       25.000     200.000          -");
}

TEST(PipelineTable, SaysOnceARankWhatIsTheRanks) {
  const parallel::Schedule schedule =
      parallel::make_schedule("zero-bubble-v", {.num_ranks = 2, .num_microbatches = 4});
  const parallel::PipelineTimes times{.stages = std::vector<parallel::StageCosts>(4),
                                      .stage_shares = std::vector<double>(4),
                                      .waiting = {0.2, 0.01},
                                      .bytes_sent = {1, 1}};
  const std::vector<std::string> lines = pipeline_table(schedule, times);
  EXPECT_EQ(lines[1].size(), lines[0].size());
  EXPECT_EQ(lines[4], "      3     0      0.0 %    1000.000     2000.000");
}

}  // namespace
}  // namespace trireme::cli
