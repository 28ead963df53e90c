#include "trireme/watch/run/alerts.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/temporary_folder.h"
#include "tests/watch/run/lines.h"

namespace trireme::watch {
namespace {

// "nan 5, spike 9".
std::string outline(const AlertScan& scan) {
  std::string text;
  for (const Alert& alert : scan.alerts())
    text += concat(text.empty() ? "" : ", ", alert.kind, " ", alert.step);
  return text;
}

std::string healthy(int step) {
  return concat("\"loss\":", 2 + 0.01 * (step % 7), ",\"tokens_per_second\":", 1000 + step % 5,
                ",\"step_seconds\":1,\"time\":", 1000 + step);
}

TEST(Alerts, AHealthyRunHasNone) {
  MetricColumns metrics;
  for (int step = 1; step <= 500; ++step) add_row(metrics, step, healthy(step));
  AlertScan scan;
  while (scan.update(metrics, 7)) {
  }
  EXPECT_EQ(outline(scan), "");
}

TEST(Alerts, NamesALossThatIsNotFiniteOnceAndASpike) {
  MetricColumns metrics;
  for (int step = 1; step <= 20; ++step) add_row(metrics, step, healthy(step));
  add_row(metrics, 21, "\"loss\":null");
  add_row(metrics, 22, "\"loss\":null");
  add_row(metrics, 23, "\"loss\":2");
  add_row(metrics, 24, "\"loss\":9");
  AlertScan scan;
  scan.update(metrics);
  EXPECT_EQ(outline(scan), "nan 21, spike 24");
}

TEST(Alerts, NamesASlowStretchAndAGap) {
  MetricColumns metrics;
  for (int step = 1; step <= 20; ++step) add_row(metrics, step, healthy(step));
  for (int step = 21; step <= 27; ++step)
    add_row(metrics, step, concat("\"loss\":2,\"tokens_per_second\":300,\"time\":", 1000 + step));
  add_row(metrics, 28, "\"loss\":2,\"time\":2000");
  AlertScan scan;
  scan.update(metrics);
  EXPECT_EQ(outline(scan), "slow 25, stall 28");
}

TEST(Alerts, NamesAStarvingExpertAfterAWhile) {
  MetricColumns metrics;
  for (int step = 1; step <= 30; ++step)
    add_row(metrics, step, concat("\"expert_tokens/0\":[100,", step < 5 ? 100 : 1, ",100]"));
  AlertScan scan;
  scan.update(metrics);
  EXPECT_EQ(outline(scan), "expert 24");
  EXPECT_NE(scan.alerts()[0].text.find("expert 1 of"), std::string::npos);
}

TEST(Alerts, BeginAgainWhenTheRunGoesBack) {
  MetricColumns metrics;
  for (int step = 1; step <= 20; ++step) add_row(metrics, step, healthy(step));
  add_row(metrics, 21, "\"loss\":null");
  AlertScan scan;
  scan.update(metrics);
  EXPECT_EQ(outline(scan), "nan 21");
  add_row(metrics, 15, healthy(15));
  scan.update(metrics);
  EXPECT_EQ(outline(scan), "");
}

TEST(Alerts, BeginAgainWhenTheRunHasGoneBackAndCaughtUpBetweenTwoLooks) {
  MetricColumns metrics;
  for (int step = 1; step <= 20; ++step) add_row(metrics, step, healthy(step));
  add_row(metrics, 21, "\"loss\":null");
  AlertScan scan;
  scan.update(metrics);
  EXPECT_EQ(outline(scan), "nan 21");
  add_row(metrics, 15, "\"loss\":9");
  for (int step = 16; step <= 22; ++step) add_row(metrics, step, healthy(step));
  scan.update(metrics);
  EXPECT_EQ(outline(scan), "spike 15");
}

TEST(Alerts, DiskAndMemoryByTheirShares) {
  const harness::TemporaryFolder folder;
  EXPECT_FALSE(disk_alert(folder.path(), {.free_disk_share = 0}, 1));
  EXPECT_EQ(disk_alert(folder.path(), {.free_disk_share = 1.1}, 1)->kind, "disk");
  EXPECT_FALSE(disk_alert(folder / "none", {.free_disk_share = 1.1}, 1));
  MetricColumns metrics;
  EXPECT_FALSE(memory_alert(metrics, 1000, {}, 1));
  add_row(metrics, 1, "\"peak_rss_bytes\":960");
  EXPECT_EQ(memory_alert(metrics, 1000, {}, 1)->kind, "memory");
  EXPECT_FALSE(memory_alert(metrics, 2000, {}, 1));
}

}  // namespace
}  // namespace trireme::watch
