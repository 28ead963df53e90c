#include "trireme/watch/series/metric_columns.h"

#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::watch {
namespace {

bool add(MetricColumns& columns, const std::string& text) {
  MetricLine line;
  return line.read(text) && columns.add(line);
}

using Steps = std::vector<int64_t>;

TEST(MetricColumns, KeepsColumnsWithGapsByStep) {
  MetricColumns columns;
  for (int step = 1; step <= 10; ++step) {
    add(columns, concat(R"({"step":)", step, R"(,"loss":)", 10 - step,
                        step % 5 == 0 ? R"(,"validation_loss":3})" : "}"));
  }
  EXPECT_EQ(columns.names(), (std::vector<std::string>{"loss", "validation_loss"}));
  EXPECT_EQ(columns.first_ending("loss"), "loss");
  EXPECT_EQ(columns.first_ending("n_loss"), "validation_loss");
  EXPECT_EQ(columns.first_ending("_per_second"), "");
  EXPECT_EQ(columns.points("validation_loss", {})->steps, (Steps{5, 10}));
  EXPECT_EQ(columns.points("loss", {.from = 3, .to = 5})->steps, (Steps{3, 4, 5}));
  EXPECT_EQ(columns.value("loss", 9), 0);
  EXPECT_TRUE(std::isnan(columns.value("validation_loss", 3)));
  EXPECT_EQ(columns.last("validation_loss")->first, 9u);
  EXPECT_FALSE(columns.points("none", {}));
  EXPECT_FALSE(columns.last("none"));
}

TEST(MetricColumns, BucketsKeepTheSmallestAndTheLargest) {
  MetricColumns columns;
  for (int step = 0; step < 1000; ++step)
    add(columns, concat(R"({"step":)", step, R"(,"loss":)", step == 777 ? 99 : 1, "}"));
  const Points points = *columns.points("loss", {.most = 10});
  EXPECT_EQ(points.count, 1000);
  ASSERT_EQ(points.steps.size(), 10u);
  EXPECT_EQ(points.max[7], 99);
  EXPECT_EQ(points.min[7], 1);
  EXPECT_NEAR(points.mean[7], 1.98, 1e-9);
  EXPECT_EQ(columns.points("loss", {.from = 777, .to = 777, .most = 10})->mean,
            std::vector<double>{99});
}

TEST(MetricColumns, ARunThatGoesBackReplacesWhatItHadWritten) {
  MetricColumns columns;
  for (int step = 1; step <= 100; ++step)
    add(columns, concat(R"({"step":)", step, R"(,"loss":1,"old":1})"));
  EXPECT_TRUE(add(columns, R"({"step":41,"loss":2,"epoch":2})"));
  EXPECT_EQ(columns.num_rows(), 41u);
  EXPECT_EQ(columns.last("old")->first, 39u);
  EXPECT_EQ(columns.value("loss", 40), 2);
  // A rank that was paused adds lines of its epoch, which is over.
  EXPECT_FALSE(add(columns, R"({"step":101,"loss":1,"epoch":1})"));
  EXPECT_TRUE(add(columns, R"({"step":42,"loss":2,"epoch":2})"));
  EXPECT_EQ(columns.row_of(42), 41u);
  EXPECT_EQ(columns.num_dropped(), 1);
}

TEST(MetricColumns, StepsMayHaveGaps) {
  MetricColumns columns;
  for (const int step : {0, 5, 6, 20}) add(columns, concat(R"({"step":)", step, R"(,"a":1})"));
  EXPECT_EQ(columns.points("a", {})->steps, (Steps{0, 5, 6, 20}));
  EXPECT_EQ(columns.row_of(1), 1u);
  EXPECT_EQ(columns.row_of(7), 3u);
  EXPECT_EQ(columns.row_of(21), 4u);
  EXPECT_EQ(columns.points("a", {.from = 7, .to = 19})->count, 0);
  EXPECT_EQ(columns.points("a", {.from = 9, .to = 2})->count, 0);
}

TEST(MetricColumns, ListsHaveAColumnForEachElement) {
  MetricColumns columns;
  add(columns, R"({"step":1,"tokens":[1,2,3]})");
  add(columns, R"({"step":2,"tokens":[4,5]})");
  EXPECT_TRUE(columns.names().empty());
  EXPECT_EQ(columns.lists()[0].second, 3u);
  EXPECT_EQ(columns.points("tokens/1", {})->mean, (std::vector<double>{2, 5}));
  EXPECT_TRUE(std::isnan(columns.list_values("tokens", 1)[2]));
}

TEST(MetricColumns, MemoryIsCountedWithNamesAndGapsAndGivenBackWhenTheRunGoesBack) {
  MetricColumns columns;
  EXPECT_EQ(columns.num_bytes(), 0u);
  for (int step = 1; step <= 1000; ++step) add(columns, concat(R"({"step":)", step, R"(,"a":1})"));
  const size_t plain = columns.num_bytes();
  EXPECT_GT(plain, 8000u);
  EXPECT_LT(plain, 20'000u);
  add(columns, R"({"step":1001})");
  add(columns, R"({"step":1002,"a":1})");  // a gap: each value has its row
  EXPECT_GT(columns.num_bytes(), plain + 4000);
  const size_t whole = columns.num_bytes();
  add(columns, R"({"step":11,"a":1})");
  EXPECT_LT(columns.num_bytes(), whole - 11'000);
}

TEST(MetricColumns, ManyNamesAreBounded) {
  MetricColumns columns;
  std::string line = R"({"step":1)";
  for (int i = 0; i < 100'000; ++i) line += concat(",\"n", i, "\":", i);
  EXPECT_TRUE(add(columns, line + "}"));
  EXPECT_EQ(columns.names().size(), 100'000u);
  EXPECT_EQ(columns.value("n99999", 0), 99'999);
  std::string more = R"({"step":2)";
  for (int i = 0; i < 40'000; ++i) more += concat(",\"m", i, "\":", i);
  EXPECT_TRUE(add(columns, more + "}"));
  EXPECT_EQ(columns.names().size(), MetricColumns::kMostColumns);
  EXPECT_EQ(columns.num_dropped(), 140'000 - static_cast<int64_t>(MetricColumns::kMostColumns));
}

}  // namespace
}  // namespace trireme::watch
