#include "trireme/parallel/embedding/disk/row_cache.h"

#include <map>
#include <random>

#include <gtest/gtest.h>

namespace trireme::parallel::inline internal {
namespace {

TEST(SlotMap, AgreesWithAMapThroughInsertsAndErasures) {
  std::mt19937_64 engine(5);
  for (const int64_t capacity : {1, 2, 7, 100}) {
    SlotMap slots(capacity);
    std::map<int64_t, int32_t> expected;
    for (int i = 0; i < 20000; ++i) {
      // Few rows, and rows far apart that meet at one place.
      const auto row = static_cast<int64_t>(engine() % 150) * (i % 2 == 0 ? 1 : int64_t{1} << 40);
      const auto found = expected.find(row);
      ASSERT_EQ(slots.find(row), found == expected.end() ? SlotMap::kNone : found->second);
      if (found != expected.end()) {
        slots.erase(row);
        expected.erase(found);
      } else if (std::ssize(expected) < capacity) {
        slots.insert(row, i);
        expected.emplace(row, i);
      }
    }
    for (const auto& [row, slot] : expected) EXPECT_EQ(slots.find(row), slot);
  }
}

}  // namespace
}  // namespace trireme::parallel::inline internal
