#include "trireme/comm/recorder/recorder.h"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/comm/recorder/diagnosis.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

TEST(StepRecording, KeepsTheNumberTheTimeAndTheWaiting) {
  Recorder recorder({});
  const int group = recorder.add_group("world", std::vector<int>{0});
  {
    StepRecording step(&recorder, 7);
    recorder.issue(group, {.operation = "barrier"}).finish(true);
    step.finish(3ms);
  }
  const Ring ring = recorder.snapshot();
  ASSERT_EQ(ring.steps.size(), 1u);
  EXPECT_EQ(ring.steps[0].step, 7);
  EXPECT_EQ(ring.steps[0].number, 0u);
  EXPECT_EQ(ring.steps[0].state, CallState::kDone);
  EXPECT_EQ(ring.steps[0].waiting, 3ms);
  EXPECT_GE(ring.steps[0].ended, ring.steps[0].began);
  // No call: neither the records nor the counts of the group have it.
  ASSERT_EQ(ring.records.size(), 1u);
  EXPECT_EQ(ring.records[0].number, 1u);
  EXPECT_EQ(ring.groups[0].num_collectives, 1u);
}

TEST(StepRecording, StepInProgressIsOpenAndOneThatThrowsHasFailed) {
  Recorder recorder({});
  {
    const StepRecording step(&recorder, 1);
    EXPECT_EQ(recorder.snapshot().steps.at(0).state, CallState::kStarted);
    EXPECT_EQ(recorder.snapshot().steps.at(0).ended, WallTime{});
  }
  EXPECT_EQ(recorder.snapshot().steps.at(0).state, CallState::kFailed);
  EXPECT_EQ(recorder.snapshot().steps.at(0).waiting, 0ns);
}

TEST(StepRecording, StepsTakeNoPartInADiagnosis) {
  Recorder recorder({});
  const int group = recorder.add_group("world", std::vector<int>{0});
  recorder.issue(group, {.operation = "barrier"}).finish(true);
  const StepRecording step(&recorder, 1);
  const std::vector<Finding> findings = diagnose({{.ring = recorder.snapshot()}});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].kind, Finding::Kind::kProgress);
}

TEST(StepRecording, WithoutARecorderNothingHappens) {
  StepRecording step(nullptr, 1);
  step.finish(1s);
}

}  // namespace
}  // namespace trireme::comm
