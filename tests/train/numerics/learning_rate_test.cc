#include "trireme/train/numerics/learning_rate.h"

#include <cmath>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

LearningRateOptions options_of(std::string_view schedule) {
  return {.schedule = choose(kRateSchedules, "schedule", schedule),
          .peak = 0.8,
          .minimum = 0.2,
          .warmup_steps = 10,
          .decay_fraction = 0.25};
}

TEST(LearningRate, EveryScheduleWarmsUpLinearlyToThePeak) {
  for (const char* schedule : {"constant", "linear", "cosine", "warmup-stable-decay"}) {
    EXPECT_DOUBLE_EQ(learning_rate(options_of(schedule), 1, 110), 0.08) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(options_of(schedule), 5, 110), 0.4) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(options_of(schedule), 10, 110), 0.8) << schedule;
  }
}

TEST(LearningRate, ConstantStaysAtThePeak) {
  EXPECT_DOUBLE_EQ(learning_rate(options_of("constant"), 110, 110), 0.8);
}

TEST(LearningRate, LinearAndCosineMeetHalfWayAndEndOneStepBeforeTheMinimum) {
  for (const char* schedule : {"linear", "cosine"}) {
    EXPECT_NEAR(learning_rate(options_of(schedule), 60, 109), 0.5, 1e-15) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(options_of(schedule), 110, 109), 0.2) << schedule;
    EXPECT_GT(learning_rate(options_of(schedule), 109, 109), 0.2 + 1e-5) << schedule;
  }
  // A quarter of the way a cosine has fallen by (1 - cos(pi/4)) / 2 of the range.
  EXPECT_NEAR(learning_rate(options_of("cosine"), 35, 109), 0.8 - 0.6 * (1 - std::sqrt(0.5)) / 2,
              1e-15);
}

TEST(LearningRate, NoStepHasTheRateZero) {
  for (const char* schedule : {"constant", "linear", "cosine", "warmup-stable-decay"}) {
    LearningRateOptions options = options_of(schedule);
    options.minimum = 0;
    for (const int64_t warmup : {0, 1, 3}) {
      options.warmup_steps = warmup;
      for (const int64_t num_steps : {1, 2, 7}) {
        for (int64_t step = 1; step <= num_steps; ++step)
          EXPECT_GT(learning_rate(options, step, num_steps), 0) << schedule << warmup << step;
      }
    }
    options.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(learning_rate(options, 1, 1), 0.8) << schedule;
    EXPECT_DOUBLE_EQ(learning_rate(options, 1, 7), 0.8) << schedule;
  }
}

TEST(LearningRate, WarmupStableDecayHoldsThenFallsLinearly) {
  const LearningRateOptions options = options_of("warmup-stable-decay");
  EXPECT_DOUBLE_EQ(learning_rate(options, 75, 100), 0.8);
  EXPECT_NEAR(learning_rate(options, 95, 100), 0.8 - 0.6 * 20 / 26, 1e-15);
  EXPECT_NEAR(learning_rate(options, 100, 100), 0.8 - 0.6 * 25 / 26, 1e-15);
}

TEST(LearningRate, ADecayOfNoStepsHoldsThePeak) {
  LearningRateOptions options = options_of("warmup-stable-decay");
  options.decay_fraction = 0;
  for (const int64_t step : {10, 50, 100}) {
    EXPECT_DOUBLE_EQ(learning_rate(options, step, 100), 0.8);
  }
  for (const char* schedule : {"linear", "cosine", "warmup-stable-decay"}) {
    EXPECT_DOUBLE_EQ(learning_rate(options_of(schedule), 10, 10), 0.8) << schedule;
  }
}

TEST(LearningRate, NoWarmupStartsAtTheSchedule) {
  LearningRateOptions options = options_of("constant");
  options.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(options, 1, 10), 0.8);
}

TEST(LearningRate, ARunShorterThanItsWarmupNeverPassesThePeak) {
  for (const char* schedule : {"linear", "cosine", "warmup-stable-decay"}) {
    for (int step = 1; step <= 5; ++step) {
      EXPECT_DOUBLE_EQ(learning_rate(options_of(schedule), step, 5), 0.08 * step) << schedule;
    }
  }
}

}  // namespace
}  // namespace trireme::train
