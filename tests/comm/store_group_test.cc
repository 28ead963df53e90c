#include "trireme/comm/store_group.h"

#include <future>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/comm/errors.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/comm/host_identity.h"

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

TEST(StoreGroup, NamesBothHostsWhenTheyShareNoMemory) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto far_away = std::async(std::launch::async, [&] {
    all_gather_over_store(store, "trireme/0/host", "another-boot:1:1 far-away", 1, 2,
                          std::chrono::seconds(20));
  });
  EXPECT_ERROR(ConfigError, make_store_group(store, 0, 2, {.name = "stored"}),
               "rank 1 on host far-away");
  far_away.get();
}

TEST(StoreGroup, RefusesARankOutsideTheGroup) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_ERROR(ConfigError, make_store_group(store, 2, 2, {}), "rank 2 of 2 ranks");
}

}  // namespace
}  // namespace trireme::comm
