#include "trireme/train/numerics/loss_scale.h"

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(LossScale, GrowsAfterARestartWithAShorterInterval) {
  LossScale scale({.initial = 4, .growth_interval = 3});
  scale.restore(4, 100);
  scale.update(true);
  EXPECT_EQ(scale.scale(), 8);
}

TEST(LossScale, HalvesOnOverflowAndDoublesAfterAnIntervalOfGoodSteps) {
  LossScale scale({.initial = 8, .growth_interval = 3});
  EXPECT_TRUE(scale.may_retry());
  EXPECT_FALSE(scale.update(false));
  EXPECT_EQ(scale.scale(), 4);
  EXPECT_TRUE(scale.update(true));
  EXPECT_TRUE(scale.update(true));
  EXPECT_FALSE(scale.update(false)) << "starts the interval anew";
  EXPECT_EQ(scale.scale(), 2);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.scale(), 4);
  EXPECT_EQ(scale.good_steps(), 0);
}

TEST(LossScale, EndsAtOneWhereAnOverflowIsNoMatterOfScale) {
  LossScale scale({.initial = 2, .growth_interval = 10});
  EXPECT_FALSE(scale.update(false));
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_FALSE(scale.may_retry());
}

TEST(LossScale, WithoutOptionsItIsOneAndNeverRetries) {
  LossScale scale;
  for (int i = 0; i < 5000; ++i) EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.scale(), 1);
  EXPECT_FALSE(scale.update(false));
  EXPECT_FALSE(scale.may_retry());
}

TEST(LossScale, GoesOnWhereItWasSaved) {
  LossScale scale({.initial = 8, .growth_interval = 3});
  scale.restore(32, 2);
  EXPECT_TRUE(scale.update(true));
  EXPECT_EQ(scale.scale(), 64);
}

}  // namespace
}  // namespace trireme::train
