#include "trireme/comm/rendezvous/store_group.h"

#include <future>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "tests/comm/errors.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/comm/hierarchical/host_identity.h"

namespace trireme::comm {
namespace {

void join_and_sum(const c10::intrusive_ptr<c10d::Store>& store, int size) {
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(std::async(std::launch::async, [&store, rank, size] {
      const auto group = make_store_group(store, rank, size, {.name = "stored"});
      EXPECT_EQ(group->rank(), rank);
      EXPECT_EQ(group->size(), size);
      EXPECT_EQ(group->name(), "stored");
      const at::Tensor data = at::full({3}, rank + 1);
      group->all_reduce(data)->wait();
      harness::assert_same_bits(data, at::full({3}, size * (size + 1) / 2), "sum");
    }));
  }
  for (auto& rank : ranks) rank.get();
}

TEST(StoreGroup, JoinsTheRanksOfAStore) {
  for (const int size : {1, 2, 3, 4}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    join_and_sum(store, size);
  }
}

TEST(StoreGroup, JoinsAgainThroughTheSameStore) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (int round = 0; round < 3; ++round) join_and_sum(store, 2);
}

// A rank of another host, as far as rank 0 can tell.
std::future<void> far_rank(const c10::intrusive_ptr<c10d::Store>& store) {
  return std::async(std::launch::async, [store] {
    const auto meetings = c10::make_intrusive<c10d::PrefixStore>("trireme", store);
    const auto timeout = std::chrono::seconds(20);
    const auto round =
        c10::make_intrusive<c10d::PrefixStore>(agree_on_session(meetings, 1, 2, timeout), meetings);
    all_gather_over_store(round, "host", "another-boot:1:1", 1, 2, timeout);
    all_gather_over_store(round, "network", "another-boot:1", 1, 2, timeout);
    all_gather_over_store(round, "interface", " ", 1, 2, timeout);
  });
}

TEST(StoreGroup, NeedsANetworkWhenItsRanksShareNoMemory) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto far_away = far_rank(store);
  EXPECT_ERROR(ConfigError, make_store_group(store, 0, 2, {.name = "stored"}),
               "rank 0: the ranks are on 2 hosts and meet at a store which names no network; set "
               "GLOO_SOCKET_IFNAME");
  far_away.get();
}

TEST(StoreGroup, OverLoopbackNoOtherHostIsReached) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto far_away = far_rank(store);
  EXPECT_ERROR(ConfigError, make_store_group(store, 0, 2, {.name = "stored"}, {.interface = "lo"}),
               "rank 0 would use interface lo (127.0.0.1), which the other hosts cannot reach: "
               "GLOO_SOCKET_IFNAME names it; name one that they reach");
  far_away.get();
}

TEST(StoreGroup, RefusesARankOutsideTheGroup) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_ERROR(ConfigError, make_store_group(store, 2, 2, {}), "rank 2 of 2 ranks");
}

}  // namespace
}  // namespace trireme::comm
