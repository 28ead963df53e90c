#include "trireme/parallel/embedding/rows/touched_rows.h"

#include <set>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"

namespace trireme::parallel {
namespace {

using Rows = std::vector<int64_t>;

TEST(TouchedRows, AreThoseSinceEachMoment) {
  TouchedRows touched(200);
  touched.touch(Rows{150, 3});
  const int64_t first = touched.mark();
  EXPECT_EQ(touched.since(first), Rows());
  touched.touch(Rows{199, 0, 63, 64});
  const int64_t second = touched.mark();
  touched.touch(Rows{3, 64});
  EXPECT_EQ(touched.since(first), (Rows{0, 3, 63, 64, 199}));
  EXPECT_EQ(touched.since(second), (Rows{3, 64}));
  EXPECT_EQ(touched.since(first), (Rows{0, 3, 63, 64, 199})) << "asking changes nothing";
}

TEST(TouchedRows, AMomentWithoutChangesIsTheOneBefore) {
  TouchedRows touched(5);
  const int64_t first = touched.mark();
  EXPECT_EQ(touched.mark(), first);
  touched.touch({});
  EXPECT_EQ(touched.mark(), first);
  touched.touch(Rows{1});
  EXPECT_GT(touched.mark(), first);
}

TEST(TouchedRows, MomentsThatNeverWereOrAreForgottenTellNothing) {
  TouchedRows touched(5);
  const int64_t first = touched.mark();
  EXPECT_EQ(touched.since(first + 1), std::nullopt);
  EXPECT_EQ(touched.since(first - 1), std::nullopt);
  touched.touch(Rows{2});
  const int64_t second = touched.mark();
  touched.forget();
  EXPECT_EQ(touched.since(first), std::nullopt);
  EXPECT_EQ(touched.since(second), std::nullopt);
  const int64_t third = touched.mark();
  EXPECT_GT(third, second);
  EXPECT_EQ(touched.since(third), Rows());
}

// Every answer is right for more moments than fit into a byte, or it is none.
TEST(TouchedRows, ManyMomentsAreRightOrForgotten) {
  harness::Draw draw(5);
  TouchedRows touched(100);
  std::vector<std::pair<int64_t, std::set<int64_t>>> moments;  // each with what was touched since
  int num_forgotten = 0;
  for (int i = 0; i < 1000; ++i) {
    moments.emplace_back(touched.mark(), std::set<int64_t>());
    const Rows rows{draw.below(100), draw.below(100)};
    touched.touch(rows);
    for (auto& [mark, since] : moments) since.insert(rows.begin(), rows.end());
    for (const auto& [mark, since] : moments) {
      const auto found = touched.since(mark);
      if (!found) continue;
      ASSERT_EQ(*found, Rows(since.begin(), since.end())) << i;
    }
    ASSERT_TRUE(touched.since(moments.back().first).has_value());
    if (!touched.since(moments.front().first)) ++num_forgotten;
    if (moments.size() > 300) moments.erase(moments.begin());
  }
  EXPECT_GT(num_forgotten, 0);
}

}  // namespace
}  // namespace trireme::parallel
