#include "trireme/dataset/batch_loader.h"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

TEST(SampleOrder, EachEpochVisitsEverySampleOnce) {
  for (const int64_t size : {1, 2, 3, 4, 5, 16, 17, 100, 1023}) {
    const SampleOrder order(size, /*seed=*/3, /*shuffle=*/true);
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::set<int64_t> visited;
      for (int64_t i = 0; i < size; ++i) visited.insert(order.index(epoch * size + i));
      EXPECT_EQ(static_cast<int64_t>(visited.size()), size);
      EXPECT_EQ(*visited.begin(), 0);
      EXPECT_EQ(*visited.rbegin(), size - 1);
    }
  }
}

TEST(SampleOrder, DependsOnSeedAndEpochAlone) {
  const auto indices = [](uint64_t seed, int64_t epoch) {
    const SampleOrder order(100, seed, /*shuffle=*/true);
    std::vector<int64_t> found;
    for (int64_t i = 0; i < 100; ++i) found.push_back(order.index(epoch * 100 + i));
    return found;
  };
  EXPECT_EQ(indices(1, 0), indices(1, 0));
  EXPECT_NE(indices(1, 0), indices(2, 0));
  EXPECT_NE(indices(1, 0), indices(1, 1));
  EXPECT_FALSE(std::ranges::is_sorted(indices(1, 0)));
}

TEST(SampleOrder, GoesByIndexWhenNotShuffled) {
  const SampleOrder order(3, /*seed=*/1, /*shuffle=*/false);
  for (int64_t n = 0; n < 7; ++n) EXPECT_EQ(order.index(n), n % 3);
  EXPECT_THROW(order.index(-1), InternalError);
}

TEST(SampleOrder, EachSampleOfEachEpochHasItsOwnRandomNumbers) {
  const SampleOrder order(4, /*seed=*/1, /*shuffle=*/true), other(4, /*seed=*/2, /*shuffle=*/true);
  std::set<uint64_t> keys;
  for (int64_t n = 0; n < 12; ++n) {
    keys.insert(order.augmentation(n).value);
    keys.insert(other.augmentation(n).value);
  }
  EXPECT_EQ(keys.size(), 24U);
}

std::vector<int64_t> epoch_of(const SampleOrder& order, int64_t epoch) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < order.size(); ++i) {
    indices.push_back(order.index(epoch * order.size() + i));
  }
  return indices;
}

TEST(SampleOrder, ShardsAreVisitedWholeAndOnce) {
  const std::vector<int64_t> shards = {5, 0, 1, 30, 7, 12};
  for (const int64_t window : {1, 2, 7, 10, 55, 1000}) {
    const SampleOrder order(55, /*seed=*/3, /*shuffle=*/true, shards, window);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<int64_t> visited = epoch_of(order, epoch);
      EXPECT_FALSE(std::ranges::is_sorted(visited));
      std::ranges::sort(visited);
      for (int64_t i = 0; i < 55; ++i) EXPECT_EQ(visited[static_cast<size_t>(i)], i);
    }
    EXPECT_NE(epoch_of(order, 0), epoch_of(order, 1));
    EXPECT_NE(epoch_of(order, 0), epoch_of({55, 4, true, shards, window}, 0));
  }
}

TEST(SampleOrder, AWindowOfOneReadsEachShardInItsOrder) {
  const std::vector<int64_t> shards(20, 6);
  const std::vector<int64_t> found = epoch_of({120, 1, true, shards, /*window=*/1}, 0);
  std::set<int64_t> begins;
  for (size_t i = 0; i < found.size(); i += 6) {
    EXPECT_EQ(found[i] % 6, 0);
    begins.insert(found[i]);
    for (size_t k = 1; k < 6; ++k) EXPECT_EQ(found[i + k], found[i] + static_cast<int64_t>(k));
  }
  EXPECT_EQ(begins.size(), 20U);
}

// Two windows of a sequence of shards touch no more shards than lie in it.
TEST(SampleOrder, ReadsStayWithinFewShards) {
  const std::vector<int64_t> shards(50, 10);
  const std::vector<int64_t> found = epoch_of({500, 1, true, shards, /*window=*/20}, 0);
  for (size_t begin = 0; begin < 500; begin += 20) {
    std::set<int64_t> touched;
    for (size_t i = begin; i < begin + 20; ++i) touched.insert(found[i] / 10);
    EXPECT_EQ(touched.size(), 2U);
  }
}

TEST(SampleOrder, WithShardsIsPure) {
  const std::vector<int64_t> shards = {40, 60};
  const SampleOrder order(100, 1, true, shards, 16), again(100, 1, true, shards, 16);
  const std::vector<int64_t> whole = epoch_of(order, 2);
  // In any order, from any epoch.
  for (int64_t i = 99; i >= 0; --i) {
    EXPECT_EQ(again.index(i), order.index(i));
    EXPECT_EQ(again.index(200 + i), whole[static_cast<size_t>(i)]);
  }
  for (int64_t n = 0; n < 100; ++n) EXPECT_EQ(SampleOrder(100, 1, false, shards).index(n), n);
}

}  // namespace
}  // namespace trireme::dataset
