#include "trireme/parallel/embedding/rows/row_memory.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>

namespace trireme::parallel::inline internal {
namespace {

TEST(OpenValues, DependOnSeedTableKeyAndColumnOnly) {
  const OpenValues values(3, "t", 0.5);
  std::array<double, 64> a, b;
  values.write(7, std::span(a));
  values.write(7, std::span(b));
  EXPECT_EQ(a, b);
  std::array<double, 5> begin;
  values.write(7, std::span(begin));
  EXPECT_TRUE(std::ranges::equal(begin, std::span(a).first(5)));
  const auto [least, most] = std::ranges::minmax(a);
  EXPECT_GE(least, -0.5);
  EXPECT_LT(most, 0.5);
  EXPECT_GT(most - least, 0.7);
  for (const auto& [seed, table, key] : {std::tuple{4, "t", 7}, {3, "u", 7}, {3, "t", 8}}) {
    OpenValues(static_cast<uint64_t>(seed), table, 0.5).write(key, std::span(b));
    EXPECT_NE(a, b);
  }
  std::array<float, 64> single;
  values.write(7, std::span(single));
  for (size_t i = 0; i < single.size(); ++i) EXPECT_EQ(single[i], static_cast<float>(a[i]));
}

}  // namespace
}  // namespace trireme::parallel::inline internal
