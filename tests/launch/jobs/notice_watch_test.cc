#include "trireme/launch/jobs/notice_watch.h"

#include <csignal>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/comm/errors.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

// Polls at the time `now` until `done`, however long the command takes.
template <typename Done>
void poll_until(NoticeWatch& watch, NoticeWatch::Clock::time_point now, const Done& done) {
  const auto limit = NoticeWatch::Clock::now() + 60s;  // only a hang reaches it
  while (!done(watch.poll(now))) {
    ASSERT_LT(NoticeWatch::Clock::now(), limit);
    std::this_thread::sleep_for(1ms);
  }
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether a child of this process exists, running or to be collected. Collects none: the watch
// would wait for it for ever.
bool has_child() {
  siginfo_t ended{};
  return waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
}

TEST(NoticeWatch, ReportsEachSignalOnce) {
  NoticeWatch watch({});
  EXPECT_FALSE(watch.poll());
  for (const int signal : {SIGUSR1, SIGINT, SIGHUP, SIGTERM}) watch.take_signal(signal);
  EXPECT_EQ(watch.poll()->source, "signal 10 (User defined signal 1)");
  EXPECT_EQ(watch.poll()->source, "signal 15 (Terminated)");
  EXPECT_FALSE(watch.poll());
}

TEST(NoticeWatch, RunsItsCommandAtEachIntervalUntilItGivesNotice) {
  const harness::TemporaryFolder folder;
  const std::string runs = (folder / "runs").string();
  const std::string flag = (folder / "flag").string();
  NoticeWatch watch(
      {.command = "echo run >>'" + runs + "'; echo leave at noon; test -e '" + flag + "'",
       .interval = 5s,
       .timeout = 1h});
  auto now = NoticeWatch::Clock::now();
  const auto has_runs = [&](const std::string& text) {
    return [&, text](const auto& notice) {
      EXPECT_FALSE(notice);
      return text_of(runs) == text && !has_child();
    };
  };
  poll_until(watch, now, has_runs("run\n"));
  EXPECT_FALSE(watch.poll(now + 4s));
  EXPECT_FALSE(has_child()) << "it is not due";
  now += 5s;
  poll_until(watch, now, has_runs("run\nrun\n"));
  std::ofstream(flag) << "x";
  now += 5s;
  std::optional<Notice> notice;
  poll_until(watch, now, [&](const auto& each) { return (notice = each).has_value(); });
  EXPECT_EQ(notice->source, "notice command");
  EXPECT_EQ(notice->text, "leave at noon");
  EXPECT_FALSE(watch.poll(now + 1h));
  EXPECT_FALSE(has_child()) << "it has given notice";
  EXPECT_FALSE(watch.take_problem());
}

TEST(NoticeWatch, SaysOnceThatItsCommandDoesNotWork) {
  NoticeWatch watch({.command = "/nowhere/ask", .interval = 1s, .timeout = 1h});
  const auto now = NoticeWatch::Clock::now();
  std::optional<std::string> problem;
  poll_until(watch, now, [&](const auto&) { return (problem = watch.take_problem()).has_value(); });
  EXPECT_NE(problem->find("ended with code 127: "), std::string::npos) << *problem;
  EXPECT_NE(problem->find("/nowhere/ask"), std::string::npos) << *problem;
  EXPECT_FALSE(watch.poll(now + 1s));
  poll_until(watch, now + 1s, [](const auto&) { return !has_child(); });
  EXPECT_FALSE(watch.take_problem());
}

TEST(NoticeWatch, KillsACommandThatTakesTooLongWithItsChildren) {
  NoticeWatch watch({.command = "sleep 1000 & sleep 1000", .interval = 1h, .timeout = 10s});
  const auto now = NoticeWatch::Clock::now();
  EXPECT_FALSE(watch.poll(now));
  EXPECT_FALSE(watch.poll(now + 9s));
  EXPECT_TRUE(has_child());
  poll_until(watch, now + 10s, [](const auto&) { return !has_child(); });
  EXPECT_EQ(watch.take_problem(), "the notice command took more than 10 s and was killed");
}

TEST(NoticeWatch, ACommandThatIsKilledIsNoNotice) {
  NoticeWatch watch({.command = "kill -9 $$", .interval = 1h, .timeout = 1h});
  std::optional<std::string> problem;
  poll_until(watch, NoticeWatch::Clock::now(), [&](const auto& notice) {
    EXPECT_FALSE(notice);
    return (problem = watch.take_problem()).has_value();
  });
  EXPECT_EQ(*problem,
            "the notice command was killed by signal 9 (Killed, by someone or for lack of memory)");
}

TEST(NoticeWatch, AnEndlessOutputNeitherStopsTheCommandNorFillsMemory) {
  NoticeWatch watch(
      {.command = "head -c 1000000 /dev/zero | tr '\\0' x", .interval = 1h, .timeout = 1h});
  std::optional<Notice> notice;
  poll_until(watch, NoticeWatch::Clock::now(),
             [&](const auto& each) { return (notice = each).has_value(); });
  EXPECT_EQ(notice->text, std::string(200, 'x') + "...");
}

TEST(NoticeWatch, ItsCommandEndsWithIt) {
  {
    NoticeWatch watch({.command = "trap '' TERM; sleep 1000"});
    EXPECT_FALSE(watch.poll());
    EXPECT_TRUE(has_child());
  }
  EXPECT_FALSE(has_child());
}

TEST(NoticeWatch, RefusesAnIntervalOfZero) {
  EXPECT_ERROR(ConfigError, NoticeWatch({.interval = 0ms}), "--notice-interval is 0 seconds");
  EXPECT_ERROR(ConfigError, NoticeWatch({.timeout = 0ms}), "time-out is 0 seconds");
}

}  // namespace
}  // namespace trireme::launch
