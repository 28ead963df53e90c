#include "trireme/model/experts/router.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::model {
namespace {

TEST(RoutingCounts, ReadTheRowsOfATable) {
  constexpr int64_t kExperts = 3;
  std::vector<double> table(static_cast<size_t>(2 * num_routing_counts(kExperts)));
  std::iota(table.begin(), table.end(), 0);
  const RoutingCounts counts =
      routing_counts(row_of_block(std::span<const double>(table), 1, kExperts));
  EXPECT_EQ(std::vector<double>(counts.assignments.begin(), counts.assignments.end()),
            (std::vector<double>{9, 10, 11}));
  EXPECT_EQ(counts.tokens, 12);
  EXPECT_EQ(counts.dropped, 13);
  EXPECT_EQ(counts.entropy, 14);
  EXPECT_EQ(counts.balance_loss, 15);
  EXPECT_EQ(counts.z_loss, 16);
  EXPECT_EQ(counts.copied, 17);
}

TEST(RoutingCounts, MaxViolationIsTheLargestOverTheMeanMinusOne) {
  const auto violation = [](std::vector<double> assignments) {
    return RoutingCounts{.assignments = assignments}.max_violation();
  };
  EXPECT_EQ(violation({4, 4, 4, 4}), 0);
  EXPECT_EQ(violation({8, 4, 4, 0}), 1);
  EXPECT_EQ(violation({16, 0, 0, 0}), 3);
  EXPECT_EQ(violation({0, 0}), 0);
}

}  // namespace
}  // namespace trireme::model
