#include "trireme/train/optimizer/sign_schedule.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(SignSchedule, OtherOptimizersSumGradientsInEveryStep) {
  for (const char* name : {"adamw", "sgd", "lamb"}) {
    EXPECT_EQ(signs_of({.name = name}), SignsOf::kNothing);
    EXPECT_TRUE(is_plain_update({.name = name, .freeze_step = 1}, 100));
  }
}

TEST(SignSchedule, OneBitRulesGetTheMomentumAfterTheFreeze) {
  for (const char* name : {"onebit-adam", "onebit-lamb"}) {
    const OptimizerConfig config{.name = name, .freeze_step = 3};
    EXPECT_EQ(signs_of(config), SignsOf::kMomentum);
    for (const int64_t update : {1, 2, 3, 4, 5}) {
      EXPECT_EQ(is_plain_update(config, update), update <= 3) << update;
      EXPECT_EQ(gets_momentum(config, update), update > 3) << update;
    }
  }
}

TEST(SignSchedule, ZeroOneAdamSendsSignsOfGradientsBetweenUpdatesOfTheVariance) {
  const OptimizerConfig config{.name = "zero-one-adam", .variance_updates = 2};
  EXPECT_EQ(signs_of(config), SignsOf::kGradient);
  std::vector<int64_t> plain;
  for (int64_t update = 1; update <= 30; ++update) {
    if (is_plain_update(config, update)) plain.push_back(update);
    EXPECT_FALSE(gets_momentum(config, update));
  }
  // Two updates with intervals of 1, two of 2, of 4, of 8.
  EXPECT_EQ(plain, (std::vector<int64_t>{1, 2, 3, 5, 7, 11, 15, 23}));
}

TEST(SignSchedule, TheVariancesUpdatesAreCounted) {
  int64_t number = 0;
  for (int64_t update = 1; update <= 500; ++update) {
    const VarianceUpdate found = variance_update(update, 3);
    if (found.is_due) ++number;
    EXPECT_EQ(found.number, number) << update;
  }
  EXPECT_EQ(variance_update(int64_t{1} << 40, 16).is_due, false);
}

}  // namespace
}  // namespace trireme::train
