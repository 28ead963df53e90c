#include "trireme/cli/train/run_alerts.h"

#include <filesystem>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

train::StepMetrics quiet_step(int64_t step) {
  return {
      .step = step, .loss = 2, .units_per_second = 1000, .step_seconds = 0.1, .time = 1e9 + step};
}

// The disk of this machine may be nearly full.
std::vector<std::string> add_step(RunAlerts& alerts, const train::StepMetrics& metrics) {
  std::vector<std::string> lines = alerts.add(metrics);
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("alert   disk"); });
  return lines;
}

TEST(RunAlerts, AreEventsAndLines) {
  const harness::TemporaryFolder folder;
  RunAlerts alerts(folder.path(), 3);
  for (int64_t step = 1; step <= 20; ++step)
    EXPECT_TRUE(add_step(alerts, quiet_step(step)).empty());
  train::StepMetrics bad = quiet_step(21);
  bad.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(add_step(alerts, bad), testing::ElementsAre("alert   nan: the loss is not finite"));
  EXPECT_TRUE(add_step(alerts, quiet_step(22)).empty());
  train::StepMetrics spike = quiet_step(23);
  spike.loss = 50;
  EXPECT_THAT(add_step(alerts, spike),
              testing::ElementsAre(HasSubstr("spike: the loss rose to 50")));
  std::vector<launch::Event> events = launch::read_events(folder.path()).events;
  std::erase_if(events, [](const auto& event) { return event.text.starts_with("disk"); });
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, launch::EventKind::kNotice);
  EXPECT_EQ(events[0].cause, "alert");
  EXPECT_EQ(events[0].step, 21);
  EXPECT_EQ(events[0].epoch, 3);
  EXPECT_EQ(events[0].text, "nan: the loss is not finite");
}

TEST(RunAlerts, ALargeRankIsToldOnce) {
  const harness::TemporaryFolder folder;
  RunAlerts alerts(folder.path(), 1);
  train::StepMetrics large = quiet_step(1);
  large.peak_rss_bytes = std::numeric_limits<int64_t>::max() / 2;
  EXPECT_THAT(add_step(alerts, large), testing::ElementsAre(HasSubstr("memory: the largest rank")));
  large.step = 2;
  EXPECT_TRUE(add_step(alerts, large).empty());
}

TEST(RunAlerts, AStarvingExpertIsFoundInTheListsOfARun) {
  const harness::TemporaryFolder folder;
  RunAlerts alerts(folder.path(), 1);
  std::vector<std::string> lines;
  for (int64_t step = 1; step <= 20; ++step) {
    train::StepMetrics metrics = quiet_step(step);
    metrics.lists = {{"expert_tokens/0", {100, 100, 1}}};
    lines = add_step(alerts, metrics);
  }
  EXPECT_THAT(lines, testing::ElementsAre(HasSubstr("expert: expert 2 of expert_tokens/0")));
}

TEST(RunAlerts, NeverMakeALostFolderAgain) {
  const harness::TemporaryFolder folder;
  const auto run = folder / "run";
  std::filesystem::create_directory(run);
  RunAlerts alerts(run, 1);
  std::filesystem::remove_all(run);
  train::StepMetrics bad = quiet_step(1);
  bad.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(add_step(alerts, bad).size(), 1U);
  EXPECT_FALSE(std::filesystem::exists(run));
}

}  // namespace
}  // namespace trireme::cli
