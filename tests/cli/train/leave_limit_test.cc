#include "trireme/cli/train/elastic_rank.h"

#include <chrono>
#include <future>

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(LeaveLimit, LetsARankGoThatLeavesInTime) {
  { const LeaveLimit never_begun; }
  LeaveLimit limit;
  limit.begin(std::chrono::hours(1));
  limit.begin(std::chrono::nanoseconds(0));  // the first counts
}

TEST(LeaveLimit, EndsTheProcessOfARankThatDoesNot) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto stay = [] {
    LeaveLimit limit;
    limit.begin(std::chrono::milliseconds(10));
    std::promise<void>().get_future().wait_for(std::chrono::hours(1));
  };
  EXPECT_EXIT(stay(), ::testing::ExitedWithCode(3), "did not leave its groups in time");
}

}  // namespace
}  // namespace trireme::cli
