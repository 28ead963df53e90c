#include "trireme/parallel/embedding/open/eviction_heap.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"

namespace trireme::parallel::inline internal {
namespace {

TEST(EvictionHeap, HasTheOrderOfASet) {
  harness::Draw draw(3);
  for (const int64_t num_slots : {1, 2, 7, 300}) {
    EvictionHeap heap;
    std::map<int64_t, EvictionRank> expected;  // of each slot
    for (int64_t step = 0; step < 3000; ++step) {
      const int64_t slot = draw.below(num_slots);
      const auto found = expected.find(slot);
      EvictionRank rank{draw.below<int64_t>(5), draw.below<int64_t>(5), slot};
      if (found == expected.end()) {
        heap.insert(slot, rank);
        expected[slot] = rank;
      } else if (draw.below(3) == 0) {
        heap.erase(slot);
        expected.erase(found);
      } else {
        rank.weight += found->second.weight + 1;
        expected[slot] = rank;  // the heap asks for it
      }
      if (step % 50 != 0) continue;
      const auto now = [&](const EvictionRank& old) { return expected.at(old.key); };
      std::set<EvictionRank> order;
      for (const auto& [at, each] : expected) order.insert(each);
      std::vector<EvictionRank> sorted(order.begin(), order.end());
      if (step % 100 == 0) {
        sorted.resize(sorted.size() / 3);
        EXPECT_EQ(heap.first(std::ssize(sorted), now), sorted);
      } else {
        EXPECT_EQ(heap.first(1000, now), sorted);
      }
    }
    heap.clear();
    EXPECT_TRUE(heap.first(9, [](const EvictionRank& old) { return old; }).empty());
  }
}

}  // namespace
}  // namespace trireme::parallel::inline internal
