#include "trireme/train/run/run_folder.h"

#include <fstream>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

TEST(RunEpochs, GrowOverTheEpochsOfAJob) {
  const harness::TemporaryFolder run;
  EXPECT_EQ(number_epoch(run.path(), "job", 1), 1);
  EXPECT_EQ(number_epoch(run.path(), "job", 2), 2);
  EXPECT_EQ(number_epoch(run.path(), "job", 5), 5);
}

TEST(RunEpochs, OfAnotherJobAreAboveThoseOfTheJobsBefore) {
  const harness::TemporaryFolder run;
  number_epoch(run.path(), "a", 3);
  EXPECT_EQ(number_epoch(run.path(), "b", 1), 4);
  EXPECT_EQ(number_epoch(run.path(), "b", 2), 5);
}

// It was paused before it asked.
TEST(RunEpochs, OfOneThatAsksAfterItsSuccessorAreLower) {
  const harness::TemporaryFolder run;
  number_epoch(run.path(), "a", 2);
  EXPECT_EQ(number_epoch(run.path(), "b", 2), 4);
  EXPECT_EQ(number_epoch(run.path(), "b", 1), 3);
}

TEST(RunEpochs, WithoutAnAgentAreTheNewestThatThereIs) {
  const harness::TemporaryFolder run;
  EXPECT_EQ(number_epoch(run.path(), "", 0), 1);
  EXPECT_FALSE(fs::exists(run / kEpochsName));
  number_epoch(run.path(), "a", 3);
  EXPECT_EQ(number_epoch(run.path(), "", 0), 3);
}

TEST(RunEpochs, HoldWithoutTheirFileAndWithALineCutShort) {
  const harness::TemporaryFolder run;
  std::ofstream(run / "metrics.jsonl") << to_json({.step = 1, .epoch = 4}) << "\n";
  EXPECT_EQ(number_epoch(run.path(), "a", 1), 5);
  fs::create_directories(run / "checkpoints/step-000007-epoch-9");
  std::ofstream(run / "checkpoints/step-000007-epoch-9/manifest.json") << "{}";
  EXPECT_EQ(number_epoch(run.path(), "", 0), 9);
  std::ofstream(run / kEpochsName, std::ios::app) << "{\"job\": \"b\", \"jo";
  EXPECT_EQ(number_epoch(run.path(), "b", 1), 10);
  EXPECT_EQ(number_epoch(run.path(), "b", 2), 11);
}

}  // namespace
}  // namespace trireme::train
