#include "trireme/launch/process/signal_watch.h"

#include <csignal>

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme::launch {
namespace {

TEST(SignalWatch, GivesSignalsOneAtATimeWithoutHandlers) {
  const SignalWatch watch({SIGUSR1, SIGUSR2});
  EXPECT_FALSE(watch.next());
  raise(SIGUSR2);
  raise(SIGUSR1);
  pollfd ready{watch.descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, /*timeout=*/-1), 1);
  EXPECT_EQ(*watch.next() + *watch.next(), SIGUSR1 + SIGUSR2);
  EXPECT_FALSE(watch.next());
}

TEST(SignalWatch, LeavesIgnoredSignalsIgnored) {
  std::signal(SIGUSR1, SIG_IGN);
  {
    const SignalWatch watch({SIGUSR1});
    EXPECT_TRUE(is_ignored(SIGUSR1));
    raise(SIGUSR1);
    EXPECT_FALSE(watch.next());
  }
  std::signal(SIGUSR1, SIG_DFL);
  EXPECT_FALSE(is_ignored(SIGUSR1));
}

TEST(SignalWatch, WaitsForChildrenOfAParentThatIgnoredThem) {
  std::signal(SIGCHLD, SIG_IGN);
  {
    const SignalWatch watch({SIGCHLD});
    const pid_t child = fork();
    if (child == 0) _exit(7);
    pollfd ready{watch.descriptor(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, /*timeout=*/-1), 1);
    EXPECT_EQ(watch.next(), SIGCHLD);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
  }
  EXPECT_TRUE(is_ignored(SIGCHLD));
  std::signal(SIGCHLD, SIG_DFL);
}

}  // namespace
}  // namespace trireme::launch
