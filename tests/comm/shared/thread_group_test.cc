#include "trireme/comm/shared/thread_group.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(ThreadGroup, GivesEachRankItsCommunicatorInOrder) {
  for (int size = 1; size <= 8; ++size) {
    auto ranks = make_thread_group(size);
    ASSERT_EQ(ranks.size(), static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_EQ(ranks[rank]->rank(), rank);
      EXPECT_EQ(ranks[rank]->size(), size);
      EXPECT_EQ(ranks[rank]->name(), "world");
    }
  }
}

TEST(ThreadGroup, GroupsAreIndependentOfEachOther) {
  auto one = make_thread_group(2);
  auto other = make_thread_group(2);
  one[1].reset();
  at::Tensor first = at::ones({2}), second = at::ones({2});
  std::thread peer([&] { other[1]->all_reduce(second)->wait(); });
  other[0]->all_reduce(first)->wait();
  peer.join();
  EXPECT_EQ(first[0].item<float>(), 2);
  EXPECT_ERROR(CommError, one[0]->barrier(), "rank 1 has left the group");
}

TEST(ThreadGroup, ANumberOfRanksBelowOneIsAConfigError) {
  EXPECT_ERROR(ConfigError, make_thread_group(0), "at least one rank, got 0");
}

// Rank 1 destroys its group while it unwinds, so rank 0 fails before the cause has arrived.
TEST(ThreadGroup, RethrowsTheCauseAlsoWhenAPeerFailsEarlierByIt) {
  std::atomic<bool> peer_failed = false;
  const auto fail = [&](Communicator& world) {
    struct Late {
      const std::atomic<bool>* until = nullptr;
      ~Late() {
        if (until == nullptr) return;
        until->wait(false);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    } late;
    const auto group = world.split(0, world.rank(), "part");
    if (world.rank() == 1) {
      late.until = &peer_failed;
      throw ConfigError("the cause");
    }
    try {
      group->barrier()->wait();
    } catch (const CommError&) {
      peer_failed = true;
      peer_failed.notify_all();
      throw;
    }
  };
  EXPECT_ERROR(ConfigError, run_thread_group(2, fail), "the cause");
}

}  // namespace
}  // namespace trireme::comm
