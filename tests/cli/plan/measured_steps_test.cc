#include "trireme/cli/plan/measured_steps.h"

#include <vector>

#include <gmock/gmock.h>

namespace trireme::cli {
namespace {

using testing::HasSubstr;

TEST(MeasuredSteps, AreMediansWithoutTheFirstThree) {
  std::vector<StepSample> samples(3, {.seconds = 9, .communication_seconds = 9, .peak_bytes = 1});
  for (const double seconds : {1.0, 2.0, 4.0}) samples.push_back({seconds, seconds / 4, seconds});
  const MeasuredSteps measured = summary_of(samples);
  EXPECT_EQ(measured.num_steps, 3);
  EXPECT_EQ(measured.step_seconds, 2);
  EXPECT_EQ(measured.communication_seconds, 0.5);
  EXPECT_EQ(measured.peak_bytes, 4);
}

TEST(MeasuredSteps, TheComparisonNamesWhatDiffersMost) {
  plan::StepPrediction step;
  step.seconds.compute = 1;
  step.seconds.data = 0.5;
  step.memory.states = 1 << 30;
  MeasuredSteps measured{.step_seconds = 2, .communication_seconds = 0.5, .peak_bytes = 1 << 29};
  EXPECT_THAT(compare(step, measured),
              HasSubstr("measured 2000.00 ms a step, predicted 1500.00 (-25 %); memory "
                        "512.0 MiB, predicted 1.0 GiB (+100 %)\n"));
  EXPECT_THAT(compare(step, measured),
              HasSubstr("computation: predicted 1000.00 ms, measured 1500.00"));
  measured.communication_seconds = 1;
  EXPECT_THAT(compare(step, measured),
              HasSubstr("communication and waiting: predicted 500.00 ms, measured 1000.00"));
}

}  // namespace
}  // namespace trireme::cli
