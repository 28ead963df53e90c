#include "trireme/cli/watch/alert_command.h"

#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/watch/serve/small_run.h"
#include "trireme/base/error.h"

namespace trireme::cli {
namespace {

using testing::HasSubstr;

// A run whose second step has a loss that is not finite.
struct WatchedCommand {
  explicit WatchedCommand(double since, std::chrono::seconds interval = std::chrono::seconds(0),
                          std::string text = "")
      : command({.command = text.empty() ? concat("cat >> '", (folder / "said").string(),
                                                  "'; echo $TRIREME_ALERT $TRIREME_STEP >> '",
                                                  (folder / "said").string(), "'")
                                         : text,
                 .timeout = std::chrono::seconds(60),
                 .interval = interval,
                 .since = since}) {}
  void look() {
    command.look(small.runs());
    command.finish();
  }
  std::string said() { return is_file(folder / "said") ? read_file(folder / "said") : ""; }
  void put_losses(const std::string& losses) { small.put("metrics.jsonl", losses); }

  harness::TemporaryFolder folder;
  watch::SmallRun small;
  AlertCommand command;
};

TEST(AlertCommand, GetsTheAlert) {
  WatchedCommand watched(0);
  watched.look();
  const std::string said = watched.said();
  const nlohmann::json alert = nlohmann::json::parse(said.substr(0, said.find('\n')));
  EXPECT_EQ(alert.at("kind"), "nan");
  EXPECT_EQ(alert.at("step"), 2);
  EXPECT_EQ(alert.at("text"), "the loss is not finite");
  EXPECT_EQ(alert.at("left_out"), 0);
  EXPECT_TRUE(said.ends_with("nan 2\n")) << said;
  watched.look();  // it is not new any more
  EXPECT_EQ(watched.said(), said);
}

TEST(AlertCommand, HistoryStartsNothing) {
  WatchedCommand watched(/*since=*/1e9);
  watched.look();
  EXPECT_EQ(watched.said(), "");
}

TEST(AlertCommand, OneOfAKindComesNowAndThen) {
  WatchedCommand watched(0, std::chrono::hours(1));
  watched.put_losses(
      "{\"step\":1,\"loss\":null}\n{\"step\":2,\"loss\":1}\n{\"step\":3,\"loss\":null}\n");
  watched.look();
  EXPECT_THAT(watched.said(), HasSubstr("nan 1\n"));
  EXPECT_THAT(watched.said(), testing::Not(HasSubstr("nan 3\n")));
}

// Its step is the newest one, which is no new alert.
TEST(AlertCommand, WhatLastsIsToldOnce) {
  WatchedCommand watched(0);
  watched.small.put("config.toml", "[train]\nsteps = 30\n");
  watched.put_losses("{\"step\":1,\"loss\":2,\"peak_rss_bytes\":9e18}\n");
  watched.look();
  EXPECT_THAT(watched.said(), HasSubstr("memory 1\n"));
  OutputFile(watched.small.folder / "metrics.jsonl", /*append=*/true)
      .write("{\"step\":2,\"loss\":2,\"peak_rss_bytes\":9e18}\n");
  const auto newest = [&] { return watched.small.runs().run(0).alerts().back().step; };
  while (newest() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  watched.look();
  EXPECT_THAT(watched.said(), testing::Not(HasSubstr("memory 2\n")));
}

TEST(AlertCommand, AFailureIsTold) {
  WatchedCommand watched(0, std::chrono::seconds(0), "exit 3");
  watched.look();
  EXPECT_THAT(watched.command.take_failures(),
              testing::ElementsAre("--on-alert ended with code 3"));
}

}  // namespace
}  // namespace trireme::cli
