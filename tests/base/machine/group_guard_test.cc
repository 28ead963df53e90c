#include "trireme/base/machine/group_guard.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme {
namespace {

using namespace std::chrono_literals;

// A process group of two, of which the leader has not been collected.
class Group {
 public:
  Group() : leader_(fork()) {
    if (leader_ == 0) {
      setpgid(0, 0);
      fork();
      while (true) pause();
    }
    setpgid(leader_, leader_);
  }
  ~Group() {
    if (leader_ == 0) return;
    kill(-leader_, SIGKILL);
    waitpid(leader_, nullptr, 0);
  }
  pid_t id() const { return leader_; }
  // The signal that has ended the leader.
  int await_end() const {
    siginfo_t ended{};
    waitid(P_PID, leader_, &ended, WEXITED | WNOWAIT);
    return ended.si_status;
  }
  bool lives() const {
    siginfo_t ended{};
    return waitid(P_PID, leader_, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0;
  }

 private:
  pid_t leader_;
};

TEST(GroupGuard, KillsGroupsWhenItsProcessIsKilled) {
  const Group guarded;
  const Group removed;
  const Group other;
  const pid_t owner = fork();
  if (owner == 0) {
    GroupGuard guard;
    guard.add(removed.id());
    guard.add(guarded.id());
    guard.remove(removed.id());
    raise(SIGKILL);
  }
  waitpid(owner, nullptr, 0);
  EXPECT_EQ(guarded.await_end(), SIGKILL);
  EXPECT_TRUE(removed.lives());
  EXPECT_TRUE(other.lives());
}

TEST(GroupGuard, KillsWhatIsLeftWithTheObject) {
  const Group left;
  {
    GroupGuard guard;
    guard.add(left.id());
    EXPECT_TRUE(left.lives());
  }
  EXPECT_EQ(left.await_end(), SIGKILL);
}

// Whether the group is killed by a lapse of this lease. It is renewed every second: this process,
// too, may be paused for longer than the lease, when the shell may miss what it is told.
bool is_killed_by_a_lapse(GroupGuard& guard, std::chrono::milliseconds lease, const Group& group) {
  for (int second = 0; second < 60 && group.lives(); ++second) {
    guard.renew(lease);
    for (int part = 0; part < 100 && group.lives(); ++part) std::this_thread::sleep_for(10ms);
  }
  return !group.lives() && group.await_end() == SIGKILL;
}

TEST(GroupGuard, KillsGroupsWhoseLeaseIsNotRenewed) {
  const Group lapsed, renewed, without;
  GroupGuard guard, renewed_guard, guard_without;
  guard.renew(200ms);
  renewed_guard.renew(60s);
  for (const auto& [each, group] : {std::pair(&guard, &lapsed), std::pair(&renewed_guard, &renewed),
                                    std::pair(&guard_without, &without)}) {
    each->begin();
    each->add(group->id());
  }
  EXPECT_TRUE(is_killed_by_a_lapse(guard, 200ms, lapsed));
  guard.remove(lapsed.id());
  EXPECT_TRUE(renewed.lives());
  EXPECT_TRUE(without.lives());
  // It guards the next group again.
  const Group next;
  guard.renew(200ms);
  guard.begin();
  guard.add(next.id());
  EXPECT_TRUE(is_killed_by_a_lapse(guard, 200ms, next));
}

// As one whose parent was stopped between fork and add(). Another try where the lease has lapsed
// before the child spoke.
TEST(GroupGuard, KillsAGroupThatOnlyItsLeaderHasAdded) {
  bool is_killed = false;
  for (int attempt = 0; attempt < 20 && !is_killed; ++attempt) {
    GroupGuard guard;
    guard.renew(500ms);
    const int link = guard.begin();
    ASSERT_GE(link, 0);
    const pid_t leader = fork();
    if (leader == 0) {
      setpgid(0, 0);
      GroupGuard::add_this_group(link);
      std::this_thread::sleep_for(3s);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(leader, &status, 0), leader);
    is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }
  EXPECT_TRUE(is_killed);
}

pid_t guard_of_this_process() {
  const std::string words = std::string("trireme-guard") + '\0' + std::to_string(getpid()) + '\0';
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline");  // none, if it has ended
    const std::string line{std::istreambuf_iterator<char>(file), {}};
    if (line.ends_with(words)) return static_cast<pid_t>(std::stol(name));
  }
  return 0;
}

TEST(GroupGuard, StartsAShellThatHasEndedAgain) {
  const Group group;
  GroupGuard guard;
  guard.add(group.id());
  const pid_t shell = guard_of_this_process();
  ASSERT_NE(shell, 0);
  EXPECT_EQ(kill(shell, SIGKILL), 0);
  EXPECT_TRUE(is_killed_by_a_lapse(guard, 200ms, group));
}

TEST(GroupGuard, ForgetsAGroupThatWasAddedTwice) {
  const Group removed;
  const Group guarded;
  {
    GroupGuard guard;
    for (const pid_t group : {removed.id(), removed.id(), guarded.id()}) guard.add(group);
    guard.remove(removed.id());
  }
  EXPECT_EQ(guarded.await_end(), SIGKILL);
  EXPECT_TRUE(removed.lives());
}

TEST(GroupGuard, LeavesGroupsAloneWhoseLeaseIsRenewed) {
  const Group group, other;
  GroupGuard guard, other_guard;
  guard.renew(2s);
  other_guard.renew(3s);
  guard.add(group.id());
  other_guard.add(other.id());
  std::atomic<bool> has_ended = false;
  std::thread renewal([&] {
    while (!has_ended) {
      guard.renew(2s);
      std::this_thread::sleep_for(10ms);
    }
  });
  EXPECT_EQ(other.await_end(), SIGKILL);
  EXPECT_TRUE(group.lives());
  has_ended = true;
  renewal.join();
}

TEST(GroupGuard, IsNoChildAndHeedsNoSignalToTheJob) {
  const Group group;
  GroupGuard guard;
  guard.add(group.id());
  // No child: all that is there to collect is the group's leader.
  siginfo_t ended{};
  EXPECT_EQ(waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
  EXPECT_EQ(ended.si_pid, 0);
  const pid_t shell = guard_of_this_process();
  ASSERT_NE(shell, 0);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) kill(shell, signal);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(kill(shell, 0), 0);
}

}  // namespace
}  // namespace trireme
