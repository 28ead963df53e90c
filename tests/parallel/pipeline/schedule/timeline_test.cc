#include "trireme/parallel/pipeline/schedule/timeline.h"

#include <gtest/gtest.h>

#include "tests/parallel/pipeline/qi_2023.h"
#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/builders.h"

namespace trireme::parallel {
namespace {

constexpr double kTimeRoundoff = 1e-12;

ScheduleOptions options_of(const QiRow& row) {
  return {.num_ranks = row.num_ranks,
          .num_microbatches = row.num_microbatches,
          .costs = {.stages = {{row.forward, row.backward_input, row.backward_weight}},
                    .communication = row.communication,
                    .kept_for_weight = kQiKeptForWeight}};
}

double bubble_of(const char* name, const ScheduleOptions& options) {
  return make_timeline(make_schedule(name, options), options.costs).bubble();
}

TEST(Timeline, ReproducesThe12RowsOf1F1BOfQiEtAlTo4Decimals) {
  for (const QiRow& row : kQiRows) {
    EXPECT_NEAR(bubble_of("1f1b", options_of(row)), row.one_f_one_b, 0.5e-4 + kTimeRoundoff)
        << row.model << ' ' << row.num_microbatches;
  }
}

TEST(Timeline, ReproducesThe12RowsOfZb1pAndZbH1OfQiEtAlTo4Decimals) {
  for (const QiRow& row : kQiRows) {
    const double bubble = bubble_of("zero-bubble", options_of(row));
    EXPECT_NEAR(bubble, row.zb_1p, 0.5e-4 + kTimeRoundoff)
        << row.model << ' ' << row.num_microbatches;
    EXPECT_NEAR(bubble, row.zb_h1, 0.5e-4 + kTimeRoundoff)
        << row.model << ' ' << row.num_microbatches;
  }
}

// Theirs was searched with an integer program too; ours is a heuristic alone:
// equal in seven rows, better in three, worse in two.
TEST(Timeline, ComesWithin12TenThousandthsOfZb2pOfQiEtAl) {
  for (const QiRow& row : kQiRows) {
    ScheduleOptions options = options_of(row);
    options.memory_limit = 2 * row.num_ranks;
    const double difference = bubble_of("zero-bubble", options) - row.zb_2p;
    EXPECT_LT(difference, 0.0012) << row.model << ' ' << row.num_microbatches;
    EXPECT_GT(difference, -0.0032) << row.model << ' ' << row.num_microbatches;
  }
}

TEST(Timeline, CommunicationDelaysTheReceiverAndOccupiesNoRank) {
  const PipelineCosts costs{.stages = {{1, 1, 1}}, .communication = 0.5};
  const Timeline timeline = make_timeline(gpipe(2, 2), costs);
  const auto& second = timeline.ranks[1];
  ASSERT_EQ(second.size(), 4u);
  EXPECT_EQ(second[0].start, 1.5);  // forward 0
  EXPECT_EQ(second[1].start, 2.5);  // forward 1, sent at 2
  EXPECT_EQ(second[2].start, 3.5);  // backward 0
  EXPECT_EQ(timeline.ranks[0][2].start, 6);
  EXPECT_EQ(timeline.makespan(), 10);
  EXPECT_EQ(timeline.cost(), 10);
  EXPECT_EQ(timeline.idle_time(0), 4);
  EXPECT_EQ(timeline.idle_share(1), 0.4);
  EXPECT_EQ(timeline.bubble(), 0.4);
}

TEST(Timeline, StagesMayDiffer) {
  const PipelineCosts costs{.stages = {{1, 1, 1}, {2, 2, 2}}};
  const Timeline timeline = make_timeline(one_forward_one_backward(2, 4), costs);
  EXPECT_EQ(timeline.makespan(), 1 + 4 * 6 + 2);
  EXPECT_EQ(timeline.idle_time(1), 3);
  EXPECT_NEAR(timeline.bubble(), 3.0 / 27, kTimeRoundoff);  // of the busiest rank
}

TEST(Timeline, ACircleIsRefused) {
  Schedule schedule = gpipe(2, 1);
  std::swap(schedule.actions[1][0], schedule.actions[1][1]);
  try {
    make_timeline(schedule, {});
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("rank 0"), std::string::npos) << what;
    EXPECT_NE(what.find("backward of microbatch 0 on stage 0"), std::string::npos) << what;
  }
}

TEST(Timeline, OfNothingIsEmpty) {
  const Timeline timeline;
  EXPECT_EQ(timeline.makespan(), 0);
  EXPECT_EQ(timeline.cost(), 0);
  EXPECT_EQ(timeline.bubble(), 0);
}

TEST(Timeline, ScaledHasEveryTimeMultipliedAndTheSameBubble) {
  const Timeline timeline = make_timeline(gpipe(2, 2), {.stages = {{1, 1, 1}}});
  const Timeline scaled = timeline.scaled(1000);
  EXPECT_EQ(scaled.cost(), 1000 * timeline.cost());
  EXPECT_EQ(scaled.ranks[1][0].start, 1000 * timeline.ranks[1][0].start);
  EXPECT_DOUBLE_EQ(scaled.bubble(), timeline.bubble());
}

}  // namespace
}  // namespace trireme::parallel
