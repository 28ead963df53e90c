#include "trireme/train/run/rank_numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

using namespace std::chrono_literals;

RunConfig config_of(int64_t data, int64_t tensor) {
  RunConfig config;
  config.parallel.data = data;
  config.parallel.tensor = tensor;
  config.train.steps = 100;
  return config;
}

size_t column(const SeriesShape& shape, const std::string& name) {
  const auto found = std::ranges::find(shape.columns, name);
  if (found == shape.columns.end()) throw Error("no column " + name);
  return static_cast<size_t>(found - shape.columns.begin());
}

StepMetrics metrics_of_rank() {
  StepMetrics metrics{.step_seconds = 1, .data_seconds = 0.25, .peak_rss_bytes = 4096};
  metrics.memory_weights_bytes = 1024;
  return metrics;
}

TEST(RankNumbers, GiveARowWithWhatEachRankSaid) {
  RankNumbers numbers(config_of(2, 1), 2, nullptr);
  const auto fast =
      numbers.mine(1, {.waited = 500ms, .communication = {{"data", 400ms}}, .units = 64});
  const auto slow =
      numbers.mine(1, {.waited = 0ms, .communication = {{"tensor", 9s}}, .units = 32});
  ASSERT_EQ(fast.size(), numbers.size(1));
  const std::vector<RankNumbers::Said> said = {{metrics_of_rank(), fast},
                                               {metrics_of_rank(), slow}};
  const RankRow row = numbers.row(1, said);
  EXPECT_EQ(row.shape.num_ranks, 2);
  const size_t width = row.shape.columns.size();
  ASSERT_EQ(row.values.size(), 2 * width);
  const auto value = [&](size_t rank, const std::string& name) {
    return row.values[rank * width + column(row.shape, name)];
  };
  EXPECT_EQ(value(0, "step_seconds"), 1);
  EXPECT_EQ(value(0, "data_seconds"), 0.25F);
  EXPECT_EQ(value(0, "wait_seconds"), 0.5F);
  EXPECT_EQ(value(0, "own_seconds"), 0.25F);
  EXPECT_EQ(value(1, "own_seconds"), 0.75F);
  EXPECT_EQ(value(0, "tokens"), 64);
  EXPECT_EQ(value(0, "communication_seconds/data"), 0.4F);
  EXPECT_EQ(value(1, "communication_seconds/data"), 0);
  EXPECT_EQ(value(0, "memory_bytes/weights"), 1024);
  EXPECT_TRUE(std::isnan(value(0, "memory_bytes/other")));
  EXPECT_EQ(value(0, "peak_bytes"), 4096);
  EXPECT_THROW(value(0, "communication_seconds/tensor"), Error);
}

TEST(RankNumbers, HaveAColumnForEachAxisThatCommunicates) {
  RankNumbers numbers(config_of(2, 2), 4, nullptr);
  EXPECT_EQ(numbers.size(1), size_t{RankNumbers::kFixed + 2});
  EXPECT_EQ(numbers.size(16), size_t{RankNumbers::kFixed + 2 + 2 * RankNumbers::kMostSent});
  EXPECT_EQ(numbers.size(100), numbers.size(16));  // the last step
  RunConfig context = config_of(1, 1);
  context.parallel.context = 2;
  EXPECT_EQ(RankNumbers(context, 2, nullptr).size(1), size_t{RankNumbers::kFixed + 2});
  EXPECT_EQ(RankNumbers(config_of(1, 1), 1, nullptr).size(1), size_t{RankNumbers::kFixed});
}

TEST(RankNumbers, TensorBoardGetsTheLongestWaitOfEachAxis) {
  const float unknown = std::numeric_limits<float>::quiet_NaN();
  const RankRow row{.shape = {.num_ranks = 2,
                              .columns = {"step_seconds", "communication_seconds/data",
                                          "communication_seconds/tensor"}},
                    .values = {1, 0.25F, unknown, 1, 0.5F, unknown}};
  const std::vector<Scalar> scalars = axis_scalars(row);
  ASSERT_EQ(scalars.size(), 1U);
  EXPECT_EQ(scalars[0].tag, "communication_seconds/data");
  EXPECT_EQ(scalars[0].value, 0.5);
  EXPECT_TRUE(axis_scalars({}).empty());
}

TEST(RankNumbers, AreUnknownWhereTheHostDoesNotWait) {
  RunConfig config = config_of(2, 1);
  config.device = at::Device(at::kCUDA, 0);
  RankNumbers numbers(config, 1, nullptr);
  const auto mine = numbers.mine(1, {.waited = 500ms, .units = 8});
  StepMetrics metrics = metrics_of_rank();
  metrics.peak_device_bytes = 512;
  const RankRow row = numbers.row(1, std::vector<RankNumbers::Said>{{metrics, mine}});
  EXPECT_TRUE(std::isnan(row.values[column(row.shape, "own_seconds")]));
  EXPECT_TRUE(std::isnan(row.values[column(row.shape, "wait_seconds")]));
  EXPECT_EQ(row.values[column(row.shape, "step_seconds")], 1);
  EXPECT_EQ(row.values[column(row.shape, "peak_bytes")], 512);
  EXPECT_THROW(column(row.shape, "memory_bytes/weights"), Error);
}

TEST(RankNumbers, TakeTheLargestWaitsNowAndThen) {
  const auto waits = std::make_shared<comm::WaitSums>();
  RankNumbers numbers(config_of(2, 1), 1, waits);
  for (int rank = 1; rank <= RankNumbers::kMostSent + 1; ++rank) {
    waits->add("data.shard", rank, rank * 1s);
  }
  waits->add("a group of its own", 3, 100s);
  const auto row_of = [&](int64_t step) {
    const auto mine = numbers.mine(step, {});
    return numbers.row(step, std::vector<RankNumbers::Said>{{metrics_of_rank(), mine}});
  };
  EXPECT_TRUE(row_of(15).waits.empty());
  const RankRow row = row_of(16);
  ASSERT_EQ(row.waits.size(), size_t{RankNumbers::kMostSent});
  EXPECT_EQ(row.waits[0], (WaitRecord{16, "other", 0, 3, 100}));
  EXPECT_EQ(row.waits[1], (WaitRecord{16, "data", 0, RankNumbers::kMostSent + 1, 9}));
  EXPECT_EQ(row_of(32).waits.size(), 2U);  // those that were left
  waits->add("learners", 5, 1s);
  EXPECT_EQ(row_of(48).waits, (std::vector<WaitRecord>{{48, "learners", 0, 5, 1}}));
}

TEST(RankNumbers, AreLeftOutWhereTheKeySaysSoOrARowIsTooLarge) {
  RunConfig config = config_of(2, 1);
  EXPECT_TRUE(RankNumbers::are_wanted(config, 1024));
  EXPECT_FALSE(RankNumbers::are_wanted(config, 1 << 15));
  config.watch.ranks = false;
  EXPECT_FALSE(RankNumbers::are_wanted(config, 1));
}

}  // namespace
}  // namespace trireme::train
