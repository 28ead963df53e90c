#include "trireme/launch/inject/performer.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/temporary_folder.h"
#include "tests/launch/inject/own_namespaces.h"
#include "trireme/launch/inject/network_fault.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// A process that does nothing until it is killed.
class Sleeper {
 public:
  Sleeper() : id_(fork()) {
    if (id_ == 0) {
      for (;;) pause();
    }
  }
  ~Sleeper() {
    if (id_ > 0) {
      kill(static_cast<pid_t>(id_), SIGKILL);
      wait(0);
    }
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  int64_t id() const { return id_; }
  // Until it has stopped, goes on or has ended. Returns how.
  int wait(int options) {
    int status = 0;
    waitpid(static_cast<pid_t>(id_), &status, options);
    if (WIFEXITED(status) || WIFSIGNALED(status)) id_ = -1;
    return status;
  }

 private:
  int64_t id_;
};

Injection parse(const char* text) { return parse_injections(text).at(0); }

InjectionReport begin(Performer& performer, const char* text, const std::vector<int64_t>& ids,
                      std::chrono::milliseconds now = 0ms) {
  return performer.begin(parse(text), ids, now);
}

TEST(Performer, KillsWithTheSignal) {
  Performer performer;
  for (const auto& [text, signal] :
       std::vector<std::pair<const char*, int>>{{"kill rank=1", SIGKILL},
                                                {"kill rank=1 signal=15", SIGTERM},
                                                {"exit rank=1 code=7", SIGKILL}}) {
    Sleeper worker;
    const InjectionReport report = begin(performer, text, {worker.id()});
    EXPECT_TRUE(report.succeeded);
    EXPECT_EQ(report.process_id, worker.id());
    EXPECT_THAT(report.text, HasSubstr("sent signal " + std::to_string(signal) + " to process "));
    EXPECT_EQ(WTERMSIG(worker.wait(0)), signal);
  }
}

TEST(Performer, StoppedWorkersGoOnAfterTheirTime) {
  Sleeper one, two;
  Performer performer;
  EXPECT_TRUE(begin(performer, "stop host=a for 20s", {one.id(), two.id()}, 5s).succeeded);
  EXPECT_TRUE(WIFSTOPPED(one.wait(WUNTRACED)));
  EXPECT_TRUE(WIFSTOPPED(two.wait(WUNTRACED)));
  EXPECT_TRUE(performer.end_due(24s).empty());
  const auto ended = performer.end_due(25s);
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(ended[0].is_end);
  EXPECT_TRUE(ended[0].succeeded);
  EXPECT_EQ(ended[0].process_id, one.id());
  EXPECT_TRUE(WIFCONTINUED(one.wait(WCONTINUED)));
  EXPECT_TRUE(WIFCONTINUED(two.wait(WCONTINUED)));
  EXPECT_TRUE(performer.end_due(1h).empty());
}

TEST(Performer, DestructorEndsWhatIsLeft) {
  Sleeper worker;
  {
    Performer performer;
    begin(performer, "stop rank=1 for 20s", {worker.id()});
    EXPECT_TRUE(WIFSTOPPED(worker.wait(WUNTRACED)));
  }
  EXPECT_TRUE(WIFCONTINUED(worker.wait(WCONTINUED)));
}

TEST(Performer, WorkerThatHasEndedMeanwhileIsNoFailure) {
  Performer performer;
  {
    Sleeper worker;
    begin(performer, "stop rank=1 for 20s", {worker.id()});
  }
  const auto ended = performer.end_due(std::chrono::milliseconds::max());
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_TRUE(ended[0].succeeded);
  EXPECT_THAT(ended[0].text, HasSubstr("had ended"));
}

TEST(Performer, WhatCannotBeInjectedIsAReport) {
  Performer performer;
  const auto text_of = [&](const char* text, const std::vector<int64_t>& ids) {
    const InjectionReport report = begin(performer, text, ids);
    EXPECT_FALSE(report.succeeded) << text;
    return report.text;
  };
  EXPECT_THAT(text_of("kill rank=1", {}), HasSubstr("no such process runs on this host"));
  EXPECT_THAT(text_of("kill rank=1", {0x7fffffff}), HasSubstr("No such process"));
  // Never a group of processes.
  for (const int64_t id : {-1, 0, 1}) {
    EXPECT_THAT(text_of("kill rank=1", {id}), HasSubstr("is not a worker"));
  }
  EXPECT_THAT(text_of("leave host=a", {}), HasSubstr("leave host=a: leave is up to the agent"));
  EXPECT_THAT(text_of("fill host=a for 1s", {}), HasSubstr("cannot fill the disk"));
  EXPECT_TRUE(performer.end_due(std::chrono::milliseconds::max()).empty());
}

TEST(Performer, NetworkOfTheMachineIsLeftAlone) {
  Performer performer({.device = "no-such-device"});
  const InjectionReport report = begin(performer, "partition host=a for 1s", {});
  EXPECT_FALSE(report.succeeded);
  // Where the tests run in a network of their own, there is nothing to protect.
  EXPECT_THAT(report.text, HasSubstr(is_network_of_machine() ? "partition host=a for 1s: refused"
                                                             : "Cannot find device"));
}

TEST(PerformerOfAHost, CutsItsNetworkAndHealsIt) {
  in_own_namespaces([] {
    run_command({"ip", "link", "add", "eth0", "type", "veth", "peer", "name", "rest"});
    run_command({"ip", "link", "set", "dev", "eth0", "up"});
    Performer performer;
    EXPECT_TRUE(begin(performer, "partition host=a for 10s", {}).succeeded);
    EXPECT_THAT(run_command({"ip", "link", "show", "up"}), ::testing::Not(HasSubstr("eth0")));
    // A second cut finds no device that is up, and the first one's end is not forgotten.
    EXPECT_FALSE(begin(performer, "partition host=a for 20s", {}).succeeded);
    const auto ended = performer.end_due(10s);
    ASSERT_EQ(ended.size(), 1u);
    EXPECT_TRUE(ended[0].succeeded) << ended[0].text;
    EXPECT_THAT(run_command({"ip", "link", "show", "up"}), HasSubstr("eth0"));
  });
}

}  // namespace
}  // namespace trireme::launch
