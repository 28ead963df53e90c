#include "trireme/dataset/sample_order.h"

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

}  // namespace
}  // namespace trireme::dataset
