#include "trireme/launch/process/signal_watch.h"

#include <csignal>

#include <gtest/gtest.h>
#include <poll.h>
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

}  // namespace
}  // namespace trireme::launch
