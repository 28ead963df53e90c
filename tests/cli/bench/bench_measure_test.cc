#include "trireme/cli/bench/bench_comm.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::cli {
namespace {

TEST(BenchMeasure, ShortOperationsAreBatchedAndLongOnesAreNot) {
  EXPECT_EQ(plan_batches(3e-6, 0.21).batch, 7);
  EXPECT_EQ(plan_batches(3e-6, 0.21).num_batches, 10000);
  EXPECT_EQ(plan_batches(3e-6, 10).num_batches, 20000);  // no more, however long the budget
  EXPECT_EQ(plan_batches(30e-6, 0.3).batch, 1);
  EXPECT_EQ(plan_batches(30e-6, 0.3).num_batches, 10000);
  EXPECT_EQ(plan_batches(0.0, 0.1).batch, 1000);
}

TEST(BenchMeasure, AnOperationLongerThanTheBudgetStillRunsFiveTimes) {
  EXPECT_EQ(plan_batches(2.0, 0.5).batch, 1);
  EXPECT_EQ(plan_batches(2.0, 0.5).num_batches, 5);
}

TEST(BenchMeasure, MedianAndPercentileAreOfSortedTimes) {
  std::vector<double> times;
  for (int i = 100; i >= 1; --i) times.push_back(i);
  EXPECT_DOUBLE_EQ(summarize(times).median_microseconds, 50.5);
  EXPECT_DOUBLE_EQ(summarize(times).p99_microseconds, 99);
  EXPECT_DOUBLE_EQ(summarize({3, 1, 2}).median_microseconds, 2);
  EXPECT_DOUBLE_EQ(summarize({3, 1, 2}).p99_microseconds, 3);
  EXPECT_DOUBLE_EQ(summarize({7}).p99_microseconds, 7);
}

TEST(BenchMeasure, EveryRankRunsTheOperationEquallyOften) {
  for (const int size : {1, 2, 3}) {
    std::vector<int64_t> counts(size);
    harness::run_ranks(size, [&](comm::Communicator& group) {
      int64_t& count = counts[group.rank()];
      // One rank is slower than the others, and must not run less.
      measure(
          group,
          [&] {
            ++count;
            if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::microseconds(200));
          },
          0.02);
    });
    for (const int64_t count : counts) EXPECT_EQ(count, counts[0]);
    EXPECT_GE(counts[0], 6);
  }
}

TEST(BenchMeasure, EveryRankReportsTheSlowest) {
  std::mutex mutex;
  std::vector<double> medians;
  harness::run_ranks(2, [&](comm::Communicator& group) {
    const Timing timing = measure(
        group,
        [&] {
          if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        },
        0.05);
    EXPECT_GE(timing.p99_microseconds, timing.median_microseconds);
    const std::lock_guard lock(mutex);
    medians.push_back(timing.median_microseconds);
  });
  EXPECT_EQ(medians[0], medians[1]);
  EXPECT_GE(medians[0], 2000);  // a sleep is never shorter
}

}  // namespace
}  // namespace trireme::cli
