#include "trireme/launch/agent/agent.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/temporary_folder.h"
#include "trireme/base/file/file.h"
#include "trireme/launch/journal/event.h"
#include "trireme/launch/process/rank_environment.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

// Keeps what people would see. Read it when the agent has ended.
class Lines final : public AgentObserver {
 public:
  void on_line(const std::string& line, bool is_error) override {
    (is_error ? errors : lines).push_back(line);
  }
  bool contains(const std::string& text) const {
    return std::ranges::any_of(
        lines, [&](const std::string& line) { return line.find(text) != std::string::npos; });
  }
  std::vector<std::string> lines;
  std::vector<std::string> errors;
};

// What a program says that speaks the link.
const std::string kHello =
    "echo '{\"message\":\"hello\",\"version\":1,\"folder\":\"\"}' >&$TRIREME_AGENT_FD\n";

// Workers are shell scripts; "$DIR" is the test's folder.
class AgentTest : public ::testing::Test {
 protected:
  AgentOptions script(const std::string& text, int num_workers = 2) const {
    return {.command = {"/bin/sh", "-c", "DIR='" + folder_.path().string() + "'\n" + text},
            .environment = inherited_environment(),
            .num_workers = num_workers,
            .host = "here",
            .folder = folder_ / "run",
            .grace = 300ms};
  }
  int run(const AgentOptions& options) { return run_agent(options, shown_); }
  std::string written(const std::string& name) const { return read_file(folder_ / name); }
  int64_t count(EventKind kind) const {
    const EventLog log = read_events(folder_ / "run");
    return std::ranges::count_if(log.events, [&](const Event& each) { return each.kind == kind; });
  }

  harness::TemporaryFolder folder_;
  const std::shared_ptr<Lines> shown_ = std::make_shared<Lines>();
  Lines& lines_ = *shown_;
};

TEST_F(AgentTest, RunsWorkersToTheirEnd) {
  EXPECT_EQ(run(script("echo rank $RANK of $WORLD_SIZE > $DIR/$RANK; echo hello from $RANK")), 0);
  EXPECT_EQ(written("0"), "rank 0 of 2\n");
  EXPECT_EQ(written("1"), "rank 1 of 2\n");
  EXPECT_TRUE(lines_.contains("hello from 0"));
  EXPECT_FALSE(lines_.contains("hello from 1"));  // only in its log
  EXPECT_NE(read_file(folder_ / "run/logs/rank-00001.log").find("hello from 1"), std::string::npos);
  EXPECT_TRUE(lines_.errors.empty());
}

TEST_F(AgentTest, StartsAllWorkersAnewWhenOneIsKilled) {
  EXPECT_EQ(
      run(script("echo x >> $DIR/starts.$RANK\n"
                 "if [ $TRIREME_EPOCH = 1 ]; then [ $RANK = 1 ] && kill -9 $$; sleep 1000; fi")),
      0);
  EXPECT_EQ(written("starts.0"), "x\nx\n");
  EXPECT_EQ(written("starts.1"), "x\nx\n");
  EXPECT_EQ(count(EventKind::kFailure), 1);
  EXPECT_EQ(count(EventKind::kStart), 2);
  EXPECT_EQ(count(EventKind::kEnd), 1);
}

TEST_F(AgentTest, CountsRestartsForTorchsPrograms) {
  EXPECT_EQ(run(script("echo $TORCHELASTIC_RESTART_COUNT >> $DIR/counts\n"
                       "[ $TRIREME_EPOCH = 1 ] && exit 1; exit 0",
                       1)),
            0);
  EXPECT_EQ(written("counts"), "0\n1\n");
}

TEST_F(AgentTest, NeverRestartsExitCodes2And4) {
  for (const std::string code : {"2", "4"}) {
    EXPECT_EQ(run(script("echo x >> $DIR/starts" + code + "; exit " + code, 1)), std::stoi(code));
    EXPECT_EQ(written("starts" + code), "x\n");
    EXPECT_EQ(lines_.errors.size(), 1);
    lines_.errors.clear();
  }
}

TEST_F(AgentTest, SaysThatAProgramIsNotThere) {
  AgentOptions options = script("");
  options.command = {"/nowhere/program"};
  EXPECT_EQ(run(options), 2);
  ASSERT_EQ(lines_.errors.size(), 1);
  EXPECT_NE(lines_.errors[0].find("cannot start /nowhere/program"), std::string::npos);
}

TEST_F(AgentTest, RestartsAProgramThatSaysNoStepAsOftenAsItMay) {
  AgentOptions options = script("echo x >> $DIR/starts; kill -9 $$", 1);
  options.budget = {.max_restarts = 4, .first_delay = 1ms};
  EXPECT_EQ(run(options), 3);
  EXPECT_EQ(written("starts"), "x\nx\nx\nx\nx\n");
}

TEST_F(AgentTest, StopsAfterThreeDeathsAtOneStep) {
  AgentOptions options = script(
      kHello + "[ -n \"$RANK\" ] || dd bs=65536 count=1 <&$TRIREME_AGENT_FD > /dev/null 2>&1\n" +
          "echo x >> $DIR/starts; kill -9 $$",
      1);
  EXPECT_EQ(run(options), 3);
  EXPECT_EQ(written("starts"), "x\nx\nx\n");
}

TEST_F(AgentTest, EndsWhatAWorkerHasStarted) {
  EXPECT_EQ(run(script("sleep 1000 & echo $! > $DIR/child; exit 0", 1)), 0);
  const auto child = static_cast<pid_t>(std::stol(written("child")));
  // It is killed before the agent returns, and collected by the system soon after.
  while (kill(child, 0) == 0) std::this_thread::sleep_for(5ms);
}

TEST_F(AgentTest, LeavesNoFileWhereKilledWorkersMet) {
  EXPECT_EQ(
      run(script("f=${TMPDIR:-/tmp}/trireme-$TRIREME_JOB.store; touch $f; echo $f >> $DIR/files\n"
                 "[ $TRIREME_EPOCH = 1 ] && kill -9 $$; exit 0",
                 1)),
      0);
  std::istringstream files(written("files"));
  int count = 0;
  for (std::string file; std::getline(files, file); ++count) {
    EXPECT_FALSE(std::filesystem::exists(file)) << file;
  }
  EXPECT_EQ(count, 2);
}

TEST_F(AgentTest, KillsAWorkerThatDoesNotLeave) {
  EXPECT_EQ(run(script("trap '' TERM\n"
                       "if [ $TRIREME_EPOCH = 1 ]; then\n"
                       "  [ $RANK = 1 ] && exit 1\n"
                       "  while true; do sleep 0.05; done\n"
                       "fi")),
            0);
}

TEST_F(AgentTest, GoesOnWithoutAFolderForItsLogs) {
  std::ofstream(folder_ / "run") << "a file in its place";
  EXPECT_EQ(run(script("echo hello from $RANK", 1)), 0);
  EXPECT_TRUE(lines_.contains("hello from 0"));
  ASSERT_EQ(lines_.errors.size(), 1);
  EXPECT_NE(lines_.errors[0].find("cannot write"), std::string::npos);
}

// Agents of one job on this host, over a store on the loopback.
class AgentsTest : public AgentTest {
 protected:
  pid_t start(const AgentOptions& options) {
    const pid_t child = fork();
    if (child == 0) {
      int code = 99;
      try {
        code = run_agent(options, std::make_shared<Lines>());
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
      }
      _exit(code);
    }
    return child;
  }
  AgentOptions among(const std::string& host, int least, int most, const std::string& text) {
    AgentOptions options = script(text, 1);
    options.min_hosts = least;
    options.max_hosts = most;
    options.endpoint = "127.0.0.1:" + std::to_string(port_);
    options.host = host;
    options.program = "steps = 1";
    options.folder = folder_ / host;
    options.lease = 1000ms;
    options.last_call = 200ms;
    return options;
  }
  void await(const std::string& name) const {
    while (!std::filesystem::exists(folder_ / name)) std::this_thread::sleep_for(5ms);
  }
  static int code_of(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int port_ = free_port();
};

TEST_F(AgentsTest, MeetAndNumberTheirRanks) {
  const std::string script = "echo $RANK of $WORLD_SIZE, node $GROUP_RANK > $DIR/ran.$RANK";
  const pid_t a = start(among("a", 2, 2, script));
  const pid_t b = start(among("b", 2, 2, script));
  EXPECT_EQ(code_of(a), 0);
  EXPECT_EQ(code_of(b), 0);
  EXPECT_EQ(written("ran.0"), "0 of 2, node 0\n");
  EXPECT_EQ(written("ran.1"), "1 of 2, node 1\n");
}

TEST_F(AgentsTest, LeaveNothingOfTheirWorkersWhenTheyAreKilled) {
  AgentOptions options = script("sleep 1000 & echo $! > $DIR/new; mv $DIR/new $DIR/child; wait", 1);
  const pid_t agent = start(options);
  await("child");
  kill(agent, SIGKILL);
  EXPECT_EQ(code_of(agent), -SIGKILL);
  const auto child = static_cast<pid_t>(std::stol(written("child")));
  while (kill(child, 0) == 0) std::this_thread::sleep_for(5ms);  // ctest bounds it
}

// A signal comes twice from schedulers and from `timeout`, which signals the group too.
TEST_F(AgentsTest, GiveASaveItsTimeHoweverOftenTheyAreAskedToStop) {
  const std::string script =
      "trap 'echo asked >> $DIR/asked; sleep 0.5; echo saved > $DIR/saved; exit 0' TERM\n"
      "(kill -TERM $PPID; sleep 0.1; kill -TERM $PPID; kill -INT $PPID) &\n"
      "while true; do sleep 0.05; done";
  EXPECT_EQ(code_of(start(this->script(script, 1))), 0);
  EXPECT_EQ(written("saved"), "saved\n");
}

TEST_F(AgentsTest, NeverEndWellWhenAWorkerIsKilledWhileItSaves) {
  const std::string script =
      "trap 'kill -9 $$' TERM\nkill -TERM $PPID\nwhile true; do sleep 0.05; done";
  EXPECT_EQ(code_of(start(this->script(script, 1))), 3);
}

TEST_F(AgentsTest, GoOnWithoutOneThatWasKilled) {
  const std::string script = "touch $DIR/ran.$RANK.$WORLD_SIZE\n[ $WORLD_SIZE = 1 ] || sleep 1000";
  AgentOptions leader = among("a", 1, 2, script);
  leader.last_call = 20s;  // the second comes for sure
  const pid_t a = start(leader);
  std::this_thread::sleep_for(100ms);
  const pid_t b = start(among("b", 1, 2, script));
  await("ran.1.2");
  kill(b, SIGKILL);
  EXPECT_EQ(code_of(b), -SIGKILL);
  EXPECT_EQ(code_of(a), 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "ran.0.1"));
}

// As when a whole virtual machine is paused.
TEST_F(AgentsTest, EndTheWorkersOfAPausedHostAndTakeItBack) {
  const std::string script =
      "echo $$ > $DIR/new.$TRIREME_EPOCH.$RANK\n"
      "mv $DIR/new.$TRIREME_EPOCH.$RANK $DIR/pid.$TRIREME_EPOCH.$RANK\n"
      "[ $TRIREME_EPOCH = 3 ] || sleep 1000";
  AgentOptions leader = among("a", 1, 2, script);
  leader.last_call = 20s;
  leader.node_rank = 0;
  AgentOptions second = among("b", 1, 2, script);
  second.node_rank = 1;
  const pid_t a = start(leader);
  const pid_t b = start(second);
  await("pid.1.1");
  const auto worker = static_cast<pid_t>(std::stol(written("pid.1.1")));
  kill(b, SIGSTOP);
  kill(-worker, SIGSTOP);
  await("pid.2.0");  // the leader goes on alone
  EXPECT_EQ(kill(worker, 0), 0);
  kill(-worker, SIGCONT);
  kill(b, SIGCONT);
  await("pid.3.1");  // both again
  EXPECT_NE(kill(worker, 0), 0) << "a worker of epoch 1 lives in epoch 3";
  EXPECT_EQ(code_of(b), 0);
  EXPECT_EQ(code_of(a), 0);
}

TEST_F(AgentsTest, GoOnWhenTheirLeaderWasPaused) {
  const std::string script =
      "touch $DIR/ran.$TRIREME_EPOCH.$RANK\n"
      "[ $TRIREME_EPOCH = 1 ] && sleep 1000; exit 0";
  AgentOptions leader = among("a", 2, 2, script);
  leader.node_rank = 0;
  AgentOptions second = among("b", 2, 2, script);
  second.node_rank = 1;
  const pid_t a = start(leader);
  const pid_t b = start(second);
  await("ran.1.1");
  kill(a, SIGSTOP);
  std::this_thread::sleep_for(leader.lease + 1500ms);
  kill(a, SIGCONT);
  EXPECT_EQ(code_of(a), 0);
  EXPECT_EQ(code_of(b), 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "ran.2.1"));
}

TEST_F(AgentsTest, EndWhenAskedWhileTheyWaitForALeader) {
  AgentOptions options = among("b", 1, 2, "exit 0");
  options.node_rank = 1;
  options.join_timeout = 1h;
  // Blocked until the agent waits for them.
  sigset_t both, before;
  sigemptyset(&both);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&both, signal);
  pthread_sigmask(SIG_BLOCK, &both, &before);
  for (const int signal : {SIGTERM, SIGINT}) {
    const pid_t b = start(options);
    std::this_thread::sleep_for(100ms);
    kill(b, signal);
    EXPECT_EQ(code_of(b), 0);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_F(AgentsTest, EndWhenAskedWhileTheyWaitForALostLeader) {
  const std::string script = "touch $DIR/ran.$RANK; exec sleep 1000";
  AgentOptions leader = among("a", 2, 2, script);
  leader.node_rank = 0;
  AgentOptions second = among("b", 2, 2, script);
  second.node_rank = 1;
  const pid_t a = start(leader);
  const pid_t b = start(second);
  await("ran.1");
  kill(a, SIGKILL);
  EXPECT_EQ(code_of(a), -SIGKILL);
  std::this_thread::sleep_for(second.lease + 500ms);
  kill(b, SIGTERM);
  EXPECT_EQ(code_of(b), 3);
}

TEST_F(AgentsTest, TakeOneInThatJoinsLater) {
  const std::string script = "touch $DIR/ran.$RANK.$WORLD_SIZE\n[ $WORLD_SIZE = 2 ] || sleep 1000";
  const pid_t a = start(among("a", 1, 2, script));
  await("ran.0.1");
  const pid_t b = start(among("b", 1, 2, script));
  EXPECT_EQ(code_of(a), 0);
  EXPECT_EQ(code_of(b), 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "ran.1.2"));
}

TEST_F(AgentsTest, OneThatIsAskedToLeavesTheOthers) {
  const std::string script = "touch $DIR/ran.$RANK.$WORLD_SIZE\n[ $WORLD_SIZE = 1 ] || sleep 1000";
  AgentOptions leader = among("a", 1, 2, script);
  leader.last_call = 20s;
  leader.node_rank = 0;
  AgentOptions second = among("b", 1, 2, script);
  second.node_rank = 1;
  const pid_t a = start(leader);
  const pid_t b = start(second);
  await("ran.1.2");
  kill(b, SIGTERM);
  EXPECT_EQ(code_of(b), 0);
  EXPECT_EQ(code_of(a), 0);
}

// A worker that speaks the link, of which each read and each write is one packet.
TEST_F(AgentsTest, KeepASpareWarmThatTakesTheNextPlace) {
  const std::string script = kHello +
                             "if [ -z \"$RANK\" ]; then\n"
                             "  touch $DIR/warm\n"
                             "  dd bs=65536 count=1 <&$TRIREME_AGENT_FD 2> /dev/null > $DIR/join\n"
                             "  exit 0\n"
                             "fi\n"
                             "touch $DIR/ran.$RANK\n"
                             "[ $TRIREME_EPOCH = 1 ] && exec sleep 1000\n"
                             "exit 0\n";
  const auto options = [&](const std::string& host, int node_rank) {
    AgentOptions one = among(host, 2, 2, script);
    one.num_spares = 1;
    one.node_rank = node_rank;
    return one;
  };
  const pid_t a = start(options("a", 0));
  const pid_t b = start(options("b", 1));
  await("ran.1");
  const pid_t c = start(options("c", 2));
  await("warm");
  kill(b, SIGKILL);
  EXPECT_EQ(code_of(b), -SIGKILL);
  EXPECT_EQ(code_of(a), 0);
  EXPECT_EQ(code_of(c), 0);
  EXPECT_NE(written("join").find("\"epoch\":2"), std::string::npos) << written("join");
}

TEST_F(AgentsTest, OneThatWaitsLeavesAtOnceWhenAsked) {
  const std::string script =
      "touch $DIR/ran.$RANK; while [ ! -e $DIR/enough ]; do sleep 0.05; done";
  const pid_t a = start(among("a", 1, 1, script));
  await("ran.0");
  const pid_t b = start(among("b", 1, 1, script));
  const auto has_joined = [&] {
    const EventLog log = read_events(folder_ / "a");
    return std::ranges::any_of(log.events, [](const Event& event) {
      return event.kind == EventKind::kJoin && event.host == "b";
    });
  };
  while (!has_joined()) std::this_thread::sleep_for(5ms);
  kill(b, SIGTERM);
  EXPECT_EQ(code_of(b), 0);
  std::ofstream(folder_ / "enough");
  EXPECT_EQ(code_of(a), 0);
}

TEST_F(AgentsTest, RefuseOneWithAnotherConfig) {
  const std::string script =
      "touch $DIR/ran.$RANK; while [ ! -e $DIR/enough ]; do sleep 0.05; done";
  const pid_t a = start(among("a", 1, 2, script));
  await("ran.0");
  AgentOptions other = among("b", 1, 2, script);
  other.program = "steps = 2";
  const pid_t b = start(other);
  EXPECT_EQ(code_of(b), 2);
  std::ofstream(folder_ / "enough");
  EXPECT_EQ(code_of(a), 0);
}

}  // namespace
}  // namespace trireme::launch
