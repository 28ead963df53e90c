#include "trireme/dataset/samples/best_fit.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

using Bins = std::vector<std::vector<uint32_t>>;

Bins bins_of(const std::vector<int64_t>& sizes, int64_t room) {
  const PackedBins packed = best_fit_decreasing(sizes, room);
  Bins bins;
  for (int64_t i = 0; i < packed.size(); ++i) {
    const auto bin = packed.bin(i);
    bins.emplace_back(bin.begin(), bin.end());
  }
  return bins;
}

// The same rule, by looking at every bin for every item.
Bins by_search(const std::vector<int64_t>& sizes, int64_t room) {
  struct Bin {
    int64_t left;
    int64_t since;  // when it got this room
    std::vector<uint32_t> items;
  };
  std::vector<uint32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return sizes[a] > sizes[b]; });
  std::vector<Bin> bins;
  int64_t time = 0;
  for (const uint32_t item : order) {
    if (sizes[item] == 0) continue;
    Bin* best = nullptr;
    for (Bin& bin : bins) {
      if (bin.left < sizes[item]) continue;
      const bool is_better = best == nullptr || bin.left < best->left ||
                             (bin.left == best->left && bin.since < best->since);
      if (is_better) best = &bin;
    }
    if (best == nullptr) best = &bins.emplace_back(Bin{room, 0, {}});
    best->left -= sizes[item];
    best->since = ++time;
    best->items.push_back(item);
  }
  Bins result;
  for (Bin& bin : bins) result.push_back(std::move(bin.items));
  return result;
}

TEST(BestFit, PutsTheLargestFirstAndEachWhereItFitsBest) {
  EXPECT_EQ(bins_of({2, 6, 1, 5, 3}, 8), (Bins{{1, 0}, {3, 4}, {2}}));
  // One place is left behind the 7, three behind the 5.
  EXPECT_EQ(bins_of({5, 7, 1}, 8), (Bins{{1, 2}, {0}}));
}

TEST(BestFit, LeavesOutWhatIsEmpty) {
  EXPECT_EQ(bins_of({0, 3, 0}, 3), (Bins{{1}}));
  EXPECT_EQ(bins_of({0}, 3), Bins{});
  EXPECT_EQ(bins_of({}, 3), Bins{});
}

TEST(BestFit, OfEqualsTheFirstComesFirst) {
  EXPECT_EQ(bins_of({4, 4, 4, 4}, 8), (Bins{{0, 1}, {2, 3}}));
  EXPECT_EQ(bins_of({6, 6, 2, 2}, 8), (Bins{{0, 2}, {1, 3}}));
}

TEST(BestFit, IsWhatSearchingEveryBinGives) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    harness::Draw draw(seed);
    const int64_t room = 1 + draw.below(int64_t{40});
    std::vector<int64_t> sizes(static_cast<size_t>(draw.below(61)));
    for (int64_t& size : sizes) size = draw.below(room + 1);
    EXPECT_EQ(bins_of(sizes, room), by_search(sizes, room)) << "seed " << seed;
  }
}

TEST(BestFit, AnItemThatFitsNowhereIsOurBug) {
  EXPECT_THROW(bins_of({4}, 3), InternalError);
  EXPECT_THROW(bins_of({-1}, 3), InternalError);
}

}  // namespace
}  // namespace trireme::dataset
