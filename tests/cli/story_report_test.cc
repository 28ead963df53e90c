#include "trireme/cli/story_report.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace trireme::cli {
namespace {

using launch::Event;
using launch::EventKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

launch::WallTime after(int seconds) {
  return std::chrono::sys_days(std::chrono::year(2026) / 11 / 25) + std::chrono::seconds(seconds);
}

launch::EventLog one_failure() {
  return {
      .events = {
          {.time = after(0), .kind = EventKind::kStart, .epoch = 1, .step = 0},
          {.time = after(10), .kind = EventKind::kRecovery, .epoch = 1, .step = 1},
          {.time = after(110),
           .kind = EventKind::kFailure,
           .epoch = 1,
           .step = 101,
           .host = "b",
           .rank = 3,
           .cause = "killed",
           .text = "rank 3 was killed by signal 9"},
          {.time = after(112), .kind = EventKind::kStart, .epoch = 2, .step = 101},
          {.time = after(115), .kind = EventKind::kRecovery, .epoch = 2, .step = 92, .seconds = 5},
          {.time = after(3715), .kind = EventKind::kEnd, .epoch = 2, .step = 3692}}};
}

TEST(StoryReport, TellsWhatHappenedAndWhatItCost) {
  const launch::EventLog log = one_failure();
  EXPECT_THAT(
      story_lines(log, launch::story_of(log)),
      ElementsAre("2026-11-25T00:00:00.000000Z  epoch 1  start  step 0",
                  "2026-11-25T00:00:10.000000Z  epoch 1  recovery  step 1",
                  "2026-11-25T00:01:50.000000Z  epoch 1  failure  killed, rank 3, host b, step "
                  "101, rank 3 was killed by signal 9",
                  "2026-11-25T00:01:52.000000Z  epoch 2  start  step 101",
                  "2026-11-25T00:01:55.000000Z  epoch 2  recovery  step 92, 5.0 s",
                  "2026-11-25T01:01:55.000000Z  epoch 2  end  step 3692",
                  "run     2 epochs, 1 failure, step 3692; it is done",
                  "goodput 99.3 %: 1h 01m of 1h 01m in steps that were kept, 10.0 s until the "
                  "first step",
                  "lost    15.0 s: killed, 1 time, 5.0 s until the next step, 10 steps repeated, "
                  "10.0 s",
                  "healed  1 time, median 5.0 s, worst 5.0 s", "hosts   failures: b 1"));
}

TEST(StoryReport, JsonHasTheSameNumbers) {
  const launch::EventLog log = one_failure();
  const nlohmann::json object = story_json(log, launch::story_of(log));
  EXPECT_EQ(object["failures"], 1);
  EXPECT_EQ(object["ended"], true);
  EXPECT_DOUBLE_EQ(object["goodput"], 3690.0 / 3715);
  EXPECT_EQ(object["causes"][0]["cause"], "killed");
  EXPECT_DOUBLE_EQ(object["causes"][0]["repeated_seconds"], 10);
  EXPECT_EQ(object["causes"][0]["repeated_steps"], 10);
  EXPECT_DOUBLE_EQ(object["recovery_seconds"]["median"], 5);
  EXPECT_EQ(object["hosts"][0]["host"], "b");
  EXPECT_EQ(object["events"].size(), 6u);
}

TEST(StoryReport, NothingOfAnEventMovesTheCursor) {
  launch::EventLog log = one_failure();
  for (Event& event : log.events) event.text = event.cause = event.host = "\x1b[2J\xff\xc2\x9b";
  std::string all;
  for (const std::string& line : story_lines(log, launch::story_of(log))) all += line;
  EXPECT_EQ(all.find('\x1b'), std::string::npos);
  EXPECT_EQ(all.find("\xc2\x9b"), std::string::npos);
  EXPECT_NO_THROW(story_json(log, launch::story_of(log)));
}

TEST(StoryReport, AnEndlessHistoryIsShort) {
  launch::EventLog log;
  for (int i = 0; i < 5000; ++i) {
    log.events.push_back({.time = after(i),
                          .kind = EventKind::kFailure,
                          .host = "h" + std::to_string(i),
                          .cause = "c" + std::to_string(i)});
  }
  log.num_unreadable = 3;
  log.is_cut = true;
  const auto lines = story_lines(log, launch::story_of(log));
  EXPECT_LT(lines.size(), 70u);
  EXPECT_THAT(lines.front(), HasSubstr("4970 earlier ones"));
  EXPECT_EQ(story_json(log, launch::story_of(log))["events"].size(), kMostListedEvents);
}

}  // namespace
}  // namespace trireme::cli
