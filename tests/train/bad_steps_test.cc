#include "trireme/train/bad_steps.h"

#include <limits>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(BadSteps, AreThoseWithoutANumberAndOnlySoManyMayBeSkippedInARow) {
  BadSteps steps({.max_skipped = 2});
  EXPECT_TRUE(steps.accept(1, 1));
  EXPECT_FALSE(steps.accept(kNan, 1));
  EXPECT_TRUE(steps.may_skip());
  EXPECT_FALSE(steps.accept(1, kInfinity));
  EXPECT_TRUE(steps.may_skip());
  EXPECT_TRUE(steps.accept(1, 1)) << "a good one between";
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(steps.accept(kNan, kNan));
    EXPECT_TRUE(steps.may_skip());
  }
  EXPECT_FALSE(steps.accept(kNan, kNan));
  EXPECT_FALSE(steps.may_skip());
}

TEST(BadSteps, NoneMayBeSkippedUnlessAskedFor) {
  BadSteps steps({});
  EXPECT_TRUE(steps.accept(1, 1e30));
  EXPECT_FALSE(steps.accept(kNan, 1));
  EXPECT_FALSE(steps.may_skip());
}

TEST(BadSteps, ASpikeIsSoManyTimesTheRunningMeanAndDoesNotRaiseIt) {
  BadSteps steps({.max_skipped = 1, .spike_factor = 5});
  EXPECT_TRUE(steps.accept(1, 100)) << "no mean to compare with yet";
  for (int i = 0; i < 200; ++i) EXPECT_TRUE(steps.accept(1, 2));
  EXPECT_NEAR(steps.mean_norm(), 2, 0.5);
  const double before = steps.mean_norm();
  EXPECT_FALSE(steps.accept(1, 5.5 * before));
  EXPECT_EQ(steps.mean_norm(), before);
  EXPECT_TRUE(steps.accept(1, 4.5 * before));
}

TEST(BadSteps, GoesOnWhereItWasSaved) {
  BadSteps steps({.max_skipped = 1, .spike_factor = 2});
  steps.restore(1.0, 50);
  EXPECT_FALSE(steps.accept(1, 2.1));
}

}  // namespace
}  // namespace trireme::train
