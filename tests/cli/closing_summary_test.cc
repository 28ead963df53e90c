#include "trireme/cli/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

using testing::ElementsAre;

train::StepMetrics step_of(int64_t step, double loss, std::optional<double> validation = {}) {
  return {.step = step,
          .loss = loss,
          .units_per_second = 500,
          .step_seconds = 2,
          .validation_loss = validation};
}

TEST(ClosingSummary, SaysWhatTheStepsReached) {
  ClosingSummary summary;
  EXPECT_TRUE(summary.is_empty());
  EXPECT_THAT(summary.lines(1), ElementsAre());
  summary.add(step_of(11, 9.5));
  summary.add(step_of(12, 5.25));
  EXPECT_THAT(summary.lines(200),
              ElementsAre("done    2 steps in 3m 20s, 500 tokens/s", "loss    9.5000 -> 5.2500"));
}

TEST(ClosingSummary, TheBestValidationMayLieBehind) {
  ClosingSummary summary;
  summary.add(step_of(1, 9, 8));
  summary.add(step_of(2, 7, 6));
  EXPECT_EQ(summary.lines(4)[1], "loss    9.0000 -> 7.0000; validation 6.0000");
  summary.add(step_of(3, 6, 6.5));
  summary.add_checkpoint("runs/a/checkpoints/step-000003");
  EXPECT_THAT(summary.lines(4),
              ElementsAre("done    3 steps in 4s, 500 tokens/s",
                          "loss    9.0000 -> 6.0000; validation 6.5000, best 6.0000 at step 2",
                          "kept    runs/a/checkpoints/step-000003"));
}

TEST(ClosingSummary, WhatToDoNextIsACommandThatTheProgramHas) {
  EXPECT_EQ(next_command("trireme", "language", "runs/a"),
            "trireme generate --checkpoint runs/a --prompt 'The '");
  EXPECT_EQ(next_command("trireme", "vision", "it's mine"),
            "trireme classify --checkpoint 'it'\\''s mine'");
  EXPECT_EQ(next_command("trireme", "diffusion", "runs/a"), "trireme sample --checkpoint runs/a");
  EXPECT_EQ(next_command("digits", "language", "runs/a"), "digits checkpoint inspect runs/a");
}

}  // namespace
}  // namespace trireme::cli
