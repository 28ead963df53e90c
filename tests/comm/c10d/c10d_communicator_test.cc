#include "trireme/comm/c10d/c10d_communicator.h"

#include <csignal>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/comm/c10d/gloo_ranks.h"
#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

// A backend that is only a name: whatever it is asked for fails.
class SilentBackend : public c10d::Backend {
 public:
  using c10d::Backend::Backend;
  const std::string getBackendName() const override { return "silent"; }
};

TEST(C10dCommunicator, WhatTheBackendDoesNotOfferIsAnErrorInItsWords) {
  std::set<int> made;
  const auto group = make_c10d_group(
      [&](const auto&, int rank, int size, std::chrono::milliseconds timeout) {
        EXPECT_EQ(timeout, std::chrono::milliseconds(1234));
        made.insert(rank);
        return c10::make_intrusive<SilentBackend>(rank, size);
      },
      c10::make_intrusive<c10d::HashStore>(), 1, 2,
      {.name = "hull", .transport = "silent", .timeout = std::chrono::milliseconds(1234)});
  EXPECT_EQ(made, std::set<int>{1});
  at::Tensor data = at::ones({3});
  EXPECT_ERROR(CommError, group->all_reduce(data),
               "all_reduce(Float, 3 elements, sum) #1 of group hull (rank 1 of 2, silent): no "
               "connection to rank 0: ");
  EXPECT_ERROR(CommError, group->barrier(), "barrier #2 of group hull (rank 1 of 2, silent)");
}

TEST(C10dCommunicator, BackendsThatCannotBeMadeAreCommErrorsWithTheirWords) {
  const auto make = [](const auto&, int, int,
                       std::chrono::milliseconds) -> c10::intrusive_ptr<c10d::Backend> {
    throw std::runtime_error("no oars\nand a second line");
  };
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_ERROR(CommError, make_c10d_group(make, store, 0, 2),
               "joining group world as rank 0 of 2: no oars");
  EXPECT_ERROR(ConfigError, make_c10d_group(make, store, 2, 2), "rank 2 of 2 ranks");
}

// What the ranks of a gloo group of processes say when `victim` disappears inside an operation.
void expect_loss(int signal_of_victim, std::chrono::milliseconds timeout,
                 const std::string& expected) {
  const auto statuses = fork_gloo_ranks(
      3,
      [&](Communicator& group) {
        at::Tensor data = at::ones({1000});
        group.all_reduce(data)->wait();
        if (group.rank() == 1) {
          raise(signal_of_victim);
          return;
        }
        EXPECT_ERROR(CommError, group.all_reduce(data), expected);
        EXPECT_ERROR(CommError, group.barrier(), "of group world");  // dead from now on
      },
      timeout);
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, -SIGKILL, 0}));
}

TEST(C10dCommunicator, ADeadPeerIsACommErrorOnAllOthers) {
  expect_loss(SIGKILL, std::chrono::minutes(5), "#2 of group world");
}

TEST(C10dCommunicator, AStoppedPeerIsNamedAtTheTimeout) {
  const harness::TemporaryFolder folder;
  const std::string path = (folder / "store").string();
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const auto statuses = harness::fork_processes(2, [&](int rank) {
    const auto store = c10::make_intrusive<c10d::FileStore>(path, 2);
    const auto group =
        make_gloo_group(store, rank, 2, loopback_options(std::chrono::milliseconds(500)));
    const pid_t self = getpid();
    if (rank == 1) {
      ASSERT_EQ(write(fds[1], &self, sizeof(self)), static_cast<ssize_t>(sizeof(self)));
      raise(SIGSTOP);
      return;
    }
    pid_t peer = 0;
    ASSERT_EQ(read(fds[0], &peer, sizeof(peer)), static_cast<ssize_t>(sizeof(peer)));
    EXPECT_ERROR(CommError, group->barrier(), "timed out after");
    kill(peer, SIGKILL);
  });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, -SIGKILL}));
}

}  // namespace
}  // namespace trireme::comm
