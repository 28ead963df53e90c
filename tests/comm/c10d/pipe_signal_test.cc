#include "trireme/comm/c10d/c10d_communicator.h"

#include <atomic>
#include <cerrno>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace trireme::comm {
namespace {

std::atomic<int> num_signals = 0;

// Counts SIGPIPE in place of dying of it, until the end of the scope.
class CountedPipeSignals {
 public:
  CountedPipeSignals() {
    num_signals = 0;
    struct sigaction counting {};
    counting.sa_handler = [](int) { ++num_signals; };
    sigaction(SIGPIPE, &counting, &before_);
  }
  ~CountedPipeSignals() { sigaction(SIGPIPE, &before_, nullptr); }

 private:
  struct sigaction before_ {};
};

// Writes to a pipe that nobody reads.
void write_to_no_one() {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  close(fds[0]);
  EXPECT_EQ(write(fds[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  close(fds[1]);
}

TEST(NoPipeSignal, AWriteToAClosedConnectionIsAnErrorAlone) {
  const CountedPipeSignals counted;
  write_to_no_one();
  EXPECT_EQ(num_signals, 1);
  {
    const NoPipeSignal quiet;
    write_to_no_one();
    write_to_no_one();
    std::thread(write_to_no_one).join();
  }
  EXPECT_EQ(num_signals, 1);
  write_to_no_one();
  EXPECT_EQ(num_signals, 2) << "the program's own handler is back";
}

TEST(NoPipeSignal, OfAnotherStaysQuietToItsEnd) {
  const CountedPipeSignals counted;
  {
    const NoPipeSignal outer;
    {
      const NoPipeSignal inner;
      write_to_no_one();
    }
    write_to_no_one();
  }
  EXPECT_EQ(num_signals, 0);
}

TEST(NoPipeSignal, LeavesASignalThatTheProgramHadPending) {
  const CountedPipeSignals counted;
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  raise(SIGPIPE);
  {
    const NoPipeSignal quiet;
    write_to_no_one();
  }
  EXPECT_EQ(num_signals, 0);
  pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
  EXPECT_EQ(num_signals, 1);
}

}  // namespace
}  // namespace trireme::comm
