#include "trireme/comm/hierarchical/host_identity.h"

#include <thread>

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/comm/errors.h"
#include "tests/harness/ranks.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(HostIdentity, IsTheSameInEveryProcessOfThisHost) {
  const std::string mine = host_identity();
  EXPECT_GT(mine.size(), 30u);
  const auto statuses = harness::fork_processes(2, [&](int) { EXPECT_EQ(host_identity(), mine); });
  EXPECT_EQ(statuses, (std::vector<harness::ExitStatus>{0, 0}));
}

TEST(HostIdentity, HostsAreNumberedByTheirLowestRank) {
  const HostMap map({"b", "a", "b", "c", "a"});
  EXPECT_EQ(map.num_hosts(), 3);
  EXPECT_EQ(map.ranks_of(0), (std::vector<int>{0, 2}));
  EXPECT_EQ(map.ranks_of(1), (std::vector<int>{1, 4}));
  EXPECT_EQ(map.host_of(3), 2);
  EXPECT_EQ(map.local_rank_of(4), 1);
  EXPECT_FALSE(map.is_contiguous());
  EXPECT_TRUE(HostMap({"b", "b", "a"}).is_contiguous());
}

TEST(HostIdentity, EveryRankGetsTheTextOfAll) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(all_gather_over_store(store, "key", concat("text", rank), rank, 3,
                                      std::chrono::minutes(1)),
                (std::vector<std::string>{"text0", "text1", "text2"}));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HostIdentity, RanksThatDoNotComeAreNamed) {
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::HashStore>();
  store->set("key/2", std::string("here"));
  EXPECT_ERROR(CommError,
               all_gather_over_store(store, "key", "mine", 1, 4, std::chrono::milliseconds(50)),
               "rank 1 of 4: these ranks did not come within 0.05 s: 0 3");
}

}  // namespace
}  // namespace trireme::comm
