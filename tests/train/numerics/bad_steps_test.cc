#include "trireme/train/numerics/bad_steps.h"

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
  EXPECT_NEAR(steps.state().mean_norm, 2, 0.5);
  const double before = steps.state().mean_norm;
  EXPECT_FALSE(steps.accept(1, 5.5 * before));
  EXPECT_EQ(steps.state().mean_norm, before);
  EXPECT_TRUE(steps.accept(1, 4.5 * before));
}

TEST(BadSteps, GoesOnWhereItWasSaved) {
  BadSteps steps({.max_skipped = 1, .spike_factor = 2});
  steps.restore({.mean_norm = 1.0, .num_good = 50, .num_skipped = 1});
  EXPECT_FALSE(steps.accept(1, 2.1));
  EXPECT_FALSE(steps.may_skip()) << "one was skipped before the restart";
}

TEST(BadSteps, SayWhatIsWrong) {
  BadSteps steps({.max_skipped = 1, .spike_factor = 2});
  EXPECT_EQ(steps.describe(-kNan, kInfinity), "loss is nan and gradient norm is inf");
  steps.restore({.mean_norm = 1.5, .num_good = 50});
  steps.may_skip();
  EXPECT_EQ(steps.describe(3, 4),
            "loss is 3 and gradient norm is 4, above train.spike_factor 2 times its mean 1.5, "
            "after 1 skipped steps");
}

}  // namespace
}  // namespace trireme::train
