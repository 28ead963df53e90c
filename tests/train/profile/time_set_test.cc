#include "trireme/train/profile/spans.h"

#include <random>

#include <gtest/gtest.h>

namespace trireme::train {
namespace {

using Spans = std::vector<Span>;

TEST(TimeSet, OverlappingTouchingNestedAndEmptySpansBecomeOne) {
  EXPECT_EQ(TimeSet({{5, 9}, {1, 3}, {3, 4}, {6, 7}, {20, 20}, {8, 12}, {30, 25}}).spans(),
            (Spans{{1, 4}, {5, 12}}));
  EXPECT_EQ(TimeSet({{5, 9}, {1, 3}}).total_ns(), 6);
  EXPECT_EQ(TimeSet().total_ns(), 0);
}

TEST(TimeSet, HolesAreCutOut) {
  const TimeSet a({{0, 10}, {20, 30}});
  EXPECT_EQ((a - TimeSet({{2, 3}, {8, 22}, {29, 40}})).spans(), (Spans{{0, 2}, {3, 8}, {22, 29}}));
  EXPECT_EQ((a - TimeSet({{0, 30}})).spans(), Spans{});
  EXPECT_EQ(a - TimeSet(), a);
  EXPECT_EQ((a & TimeSet({{10, 20}})).spans(), Spans{});
}

// Against one bit for each of 64 moments.
TEST(TimeSet, ArithmeticIsThatOfSets) {
  std::mt19937 random(1);
  const auto make = [&] {
    Spans spans;
    for (unsigned i = random() % 6; i > 0; --i) {
      const int64_t begin = random() % 60;
      spans.push_back({begin, begin + static_cast<int64_t>(random() % 12)});
    }
    return TimeSet(spans);
  };
  const auto has = [](const TimeSet& set, int64_t moment) {
    for (const Span& span : set.spans()) {
      if (span.begin_ns <= moment && moment < span.end_ns) return true;
    }
    return false;
  };
  for (int round = 0; round < 500; ++round) {
    const TimeSet a = make();
    const TimeSet b = make();
    for (int64_t moment = 0; moment < 80; ++moment) {
      const bool in_a = has(a, moment);
      const bool in_b = has(b, moment);
      EXPECT_EQ(has(a | b, moment), in_a || in_b);
      EXPECT_EQ(has(a & b, moment), in_a && in_b);
      EXPECT_EQ(has(a - b, moment), in_a && !in_b);
    }
    EXPECT_EQ((a & b).total_ns() + (a - b).total_ns(), a.total_ns());
  }
}

}  // namespace
}  // namespace trireme::train
