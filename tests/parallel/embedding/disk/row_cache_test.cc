#include "trireme/parallel/embedding/disk/row_cache.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::parallel::inline internal {
namespace {

// Every row is in the slot that the cache says, through any uses.
TEST(RowCache, KeepsEachRowInOneSlot) {
  std::mt19937_64 engine(9);
  for (const int64_t num_slots : {1, 2, 3, 20, 64}) {
    RowCache cache(num_slots);
    std::map<int64_t, int32_t> slots;  // by row
    std::map<int32_t, int64_t> rows;   // by slot
    for (int batch = 0; batch < 500; ++batch) {
      cache.unpin();
      std::vector<int64_t> wanted;
      for (auto i = static_cast<int64_t>(engine() % static_cast<uint64_t>(num_slots + 1)); i > 0;
           --i) {
        wanted.push_back(static_cast<int64_t>(engine() % 100));
      }
      std::ranges::sort(wanted);
      wanted.erase(std::ranges::unique(wanted).begin(), wanted.end());
      for (const int64_t row : wanted) {
        const int32_t slot = cache.use(row);
        ASSERT_EQ(slot, slots.contains(row) ? slots[row] : RowCache::kNone);
        if (slot != RowCache::kNone) continue;
        const RowCache::Placed placed = cache.place(row);
        ASSERT_NE(placed.slot, RowCache::kNone);
        ASSERT_EQ(placed.evicted_row, rows.contains(placed.slot) ? rows[placed.slot] : -1);
        slots.erase(placed.evicted_row);
        slots[row] = placed.slot;
        rows[placed.slot] = row;
      }
      for (const int64_t row : wanted) ASSERT_TRUE(slots.contains(row)) << "a pinned row left";
    }
  }
}

TEST(RowCache, HasNoRoomWhenAllIsPinned) {
  RowCache cache(2);
  EXPECT_EQ(cache.place(1).slot, 0);
  EXPECT_EQ(cache.place(2).slot, 1);
  EXPECT_EQ(cache.place(3).slot, RowCache::kNone);
  cache.unpin();
  EXPECT_NE(cache.place(3).slot, RowCache::kNone);
}

// A scan over many rows does not push out those that are used again and again.
TEST(RowCache, KeepsWhatIsUsedOften) {
  constexpr int64_t kHot = 50;
  RowCache cache(100);
  const auto use = [&](int64_t row) {
    cache.unpin();
    const bool is_found = cache.use(row) != RowCache::kNone;
    if (!is_found) cache.place(row);
    return is_found;
  };
  for (int round = 0; round < 10; ++round) {
    for (int64_t row = 0; row < kHot; ++row) use(row);
  }
  for (int64_t row = 1000; row < 2000; ++row) use(row);
  int num_found = 0;
  for (int64_t row = 0; row < kHot; ++row) num_found += use(row) ? 1 : 0;
  EXPECT_EQ(num_found, kHot);
}

// By Zipf's law with a tenth of the rows in slots, near the best that any choice of rows gives.
TEST(RowCache, ComesNearTheIdealForZipfsLaw) {
  constexpr int64_t kRows = 20000, kSlots = 2000;
  std::vector<double> chances(kRows);
  for (int64_t i = 0; i < kRows; ++i) chances[static_cast<size_t>(i)] = std::pow(i + 1, -1.05);
  const double total = std::accumulate(chances.begin(), chances.end(), 0.0);
  const double ideal = std::accumulate(chances.begin(), chances.begin() + kSlots, 0.0) / total;
  std::discrete_distribution<int64_t> draw(chances.begin(), chances.end());
  std::mt19937_64 engine(4);
  RowCache cache(kSlots);
  int64_t num_found = 0;
  constexpr int64_t kWarm = 100000, kMeasured = 300000;
  for (int64_t i = 0; i < kWarm + kMeasured; ++i) {
    cache.unpin();
    const int64_t row = draw(engine) * 7919 % kRows;
    const bool is_found = cache.use(row) != RowCache::kNone;
    if (!is_found) cache.place(row);
    num_found += i >= kWarm && is_found ? 1 : 0;
  }
  const double rate = static_cast<double>(num_found) / kMeasured;
  EXPECT_GT(rate, 0.93 * ideal);
  EXPECT_LT(rate, ideal + 0.01);
  RecordProperty("hit_rate_of_ideal", std::to_string(rate / ideal));
}

}  // namespace
}  // namespace trireme::parallel::inline internal
