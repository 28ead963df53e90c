#include "trireme/watch/series/wait_totals.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

TEST(WaitTotals, SumsByAxisAndPairWithinSteps) {
  WaitTotals waits;
  waits.add(1, "data", 0, 1, 0.5F);
  waits.add(2, "data", 0, 1, 0.25F);
  waits.add(2, "tensor", 0, 1, 4);
  waits.add(3, "data", 1, 0, 8);
  const auto totals = waits.between(1, 2, 10);
  ASSERT_EQ(totals.size(), 2u);
  EXPECT_EQ(totals[0].axis, "tensor");
  EXPECT_EQ(totals[1].seconds, 0.75);
  EXPECT_EQ(waits.between(1, 3, 1)[0].seconds, 8);
  EXPECT_EQ(waits.axes(), (std::vector<std::string>{"data", "tensor"}));
}

TEST(WaitTotals, LeavesOutWhatIsNoWait) {
  WaitTotals waits;
  waits.add(1, "data", -1, 0, 1);
  waits.add(1, "data", 0, -5, 1);
  waits.add(1, "data", 0, 1, -1);
  waits.add(1, "data", 0, 1, NAN);
  EXPECT_TRUE(waits.between(0, 9, 9).empty());
}

TEST(WaitTotals, BoundsItsMemoryAndKeepsTheSums) {
  WaitTotals waits(100);
  for (int step = 0; step < 10'000; ++step) waits.add(step, "data", step % 3, 3, 1);
  double sum = 0;
  for (const WaitTotal& total : waits.between(0, 10'000, 10)) sum += total.seconds;
  EXPECT_EQ(sum, 10'000);
}

}  // namespace
}  // namespace trireme::watch
