#include "trireme/comm/recorder/wait_sums.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/shared/shm_group.h"

namespace trireme::comm {
namespace {

using namespace std::chrono_literals;

TEST(WaitSums, GivesTheLargestAndKeepsTheRest) {
  WaitSums sums;
  sums.add("data", 3, 2s);
  sums.add("data", 3, 1s);
  sums.add("tensor", 0, 5s);
  sums.add("data", 1, 500ms);
  EXPECT_EQ(sums.take_largest(2), (std::vector<WaitSums::Sum>{{"tensor", 0, 5}, {"data", 3, 3}}));
  sums.add("data", 1, 500ms);
  EXPECT_EQ(sums.take_largest(2), (std::vector<WaitSums::Sum>{{"data", 1, 1}}));
  EXPECT_TRUE(sums.take_largest(2).empty());
}

TEST(WaitSums, CountsManyGroupsAsOne) {
  WaitSums sums;
  for (size_t i = 0; i < 2 * WaitSums::kMostGroups; ++i) sums.add(concat("group", i), 0, 1s);
  const auto all = sums.take_largest(1000);
  EXPECT_LE(all.size(), WaitSums::kMostGroups + 1);
  EXPECT_EQ(all.front().group, "other");
}

// Rank 1 comes late five times. Returns whom this rank has waited for most since the groups met.
WaitSums::Sum awaited_in(Communicator& group, const std::shared_ptr<Recorder>& recorder,
                         bool is_late) {
  group.barrier()->wait();
  recorder->waits()->take_largest(1000);
  for (int i = 0; i < 5; ++i) {
    if (is_late) std::this_thread::sleep_for(100ms);
    group.barrier()->wait();
  }
  const auto sums = recorder->waits()->take_largest(1);
  return sums.empty() ? WaitSums::Sum{} : sums.front();
}

TEST(WaitSums, KnowTheLastArriverInSharedMemoryByItsNumberInTheWorld) {
  const std::string job = harness::unique_job();
  const auto statuses = harness::fork_processes(3, [&](int rank) {
    const auto recorder =
        std::make_shared<Recorder>(RecorderOptions{.rank = rank, .world_size = 3});
    const auto world = make_shm_group(job, rank, 3, {.recorder = recorder});
    const WaitSums::Sum in_world = awaited_in(*world, recorder, rank == 1);
    if (rank != 1) {
      EXPECT_EQ(in_world.group, "world");
      EXPECT_EQ(in_world.world_rank, 1);
      EXPECT_GT(in_world.seconds, 0.1);  // of 0.5
    }
    // There rank 1 is the first of two.
    const auto pair = world->split(rank == 0 ? -1 : 0, rank, "pair");
    if (!pair) return;
    const WaitSums::Sum in_pair = awaited_in(*pair, recorder, rank == 1);
    if (rank == 2) {
      EXPECT_EQ(in_pair.group, "pair");
      EXPECT_EQ(in_pair.world_rank, 1);
    }
  });
  EXPECT_EQ(statuses, std::vector<harness::ExitStatus>(3, 0));
}

}  // namespace
}  // namespace trireme::comm
