#include "trireme/train/step_reports.h"

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"

namespace trireme::train {
namespace {

struct Listener : TrainObserver {
  std::vector<int64_t> steps;
  std::vector<std::string> findings;
  void on_step(const StepMetrics& metrics) override { steps.push_back(metrics.step); }
  void on_finding(const std::string& line) override { findings.push_back(line); }
};

TEST(StepReports, TellsOfEveryStepAndOnceOfAnUndefinedMetric) {
  const harness::TemporaryFolder folder;
  MetricsWriter writer(folder.path(), 0);
  Listener user;
  StepReports reports(user);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  reports.report({.step = 1, .others = {{"auc", nan}}}, writer, {std::nullopt, "found"});
  reports.report({.step = 2, .others = {{"auc", nan}}}, writer, {});
  EXPECT_EQ(user.steps, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(user.findings, (std::vector<std::string>{
                               "auc is undefined in step 1: null in metrics.jsonl", "found"}));
  std::filesystem::remove(folder / kMetricsName);
  reports.report({.step = 3}, writer, {});
  EXPECT_THAT(user.findings.back(), ::testing::HasSubstr("continues from step 3"));
}

}  // namespace
}  // namespace trireme::train
