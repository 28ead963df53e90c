#include "trireme/parallel/embedding/open/eviction_heap.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"

namespace trireme::parallel::inline internal {
namespace {

TEST(UseCount, HalvesEarlierUses) {
  EXPECT_EQ(uses_after(1, 1, 3, 4), 2);
  EXPECT_EQ(uses_after(2, 3, 4, 4), 2);
  EXPECT_EQ(uses_after(2, 3, 12, 4), 1.25F);
  EXPECT_EQ(uses_after(2, 3, 1'000'000, 4), 1);
  EXPECT_EQ(uses_after(2, 3, 1'000'000, 0), 3);
  EXPECT_EQ(uses_after(kMostUses, 1, 1, 0), kMostUses);
}

// The weights of rows that were last used in different steps are in the order of what is left of
// their uses at any later step.
TEST(UseCount, WeightsHaveTheOrderOfTheUsesLeftAtAnyLaterStep) {
  harness::Draw draw(5);
  for (int round = 0; round < 300; ++round) {
    const int64_t halve_steps = draw.below(6);
    std::vector<std::pair<double, int64_t>> rows;  // (uses left at step 60, weight)
    for (int r = 0; r < 4; ++r) {
      std::vector<int64_t> steps{1 + draw.below(10)};
      while (steps.back() < 40) steps.push_back(steps.back() + 1 + draw.below(20));
      double left = 0;
      float uses = 1;
      for (size_t i = 0; i < steps.size(); ++i) {
        double use = 1;
        for (int64_t k = steps[i] + 1; k <= 60; ++k) {
          if (halve_steps > 0 && k % halve_steps == 0) use /= 2;
        }
        left += use;
        if (i > 0) uses = uses_after(uses, steps[i - 1], steps[i], halve_steps);
      }
      const int64_t weight = use_weight(uses, steps.back(), halve_steps);
      for (const auto& [other, of_other] : rows) {
        // fp32 keeps 24 bits, so what was halved more often may be rounded away.
        if (halve_steps == 1 && std::abs(left / other - 1) < 1e-6) continue;
        EXPECT_EQ(left <=> other, std::partial_ordering(weight <=> of_other));
      }
      rows.emplace_back(left, weight);
    }
  }
}

}  // namespace
}  // namespace trireme::parallel::inline internal
