#include "trireme/comm/store_group.h"

#include <future>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "tests/comm/errors.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

void join_and_sum(c10d::Store& store, int size) {
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
    c10d::HashStore store;
    join_and_sum(store, size);
  }
}

TEST(StoreGroup, JoinsAgainThroughTheSameStore) {
  c10d::HashStore store;
  for (int round = 0; round < 3; ++round) join_and_sum(store, 2);
}

TEST(StoreGroup, NamesBothHostsWhenTheyShareNoMemory) {
  c10d::HashStore store;
  const std::string other = "another-boot:1:1 far-away";
  store.set("trireme/0/host/1", std::vector<uint8_t>(other.begin(), other.end()));
  EXPECT_ERROR(ConfigError, make_store_group(store, 0, 2, {.name = "stored"}),
               "rank 1 on host far-away");
}

TEST(StoreGroup, RefusesARankOutsideTheGroup) {
  c10d::HashStore store;
  EXPECT_ERROR(ConfigError, make_store_group(store, 2, 2, {}), "rank 2 of 2 ranks");
}

TEST(StoreGroup, IdentifiesThisHostAlwaysAlike) {
  EXPECT_EQ(host_identity(), host_identity());
  EXPECT_FALSE(host_identity().empty());
}

}  // namespace
}  // namespace trireme::comm
