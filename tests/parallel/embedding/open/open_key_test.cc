#include "trireme/parallel/embedding/open/open_key.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::parallel::inline internal {
namespace {

TEST(OpenKey, IsUndoneAndSpreadsIdsOverThePlaces) {
  std::mt19937_64 engine(1);
  std::vector<int64_t> ids{std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                           0, 1, -1};
  for (int i = 0; i < 10000; ++i) ids.push_back(i < 5000 ? i : static_cast<int64_t>(engine()));
  std::vector<int64_t> keys;
  int64_t in_upper_half = 0;
  for (const int64_t id : ids) {
    keys.push_back(open_key(id));
    EXPECT_EQ(id_of_open_key(keys.back()), id);
    in_upper_half += place_of_open_key(keys.back()) >> (kOpenPlaceBits - 1);
  }
  EXPECT_NEAR(static_cast<double>(in_upper_half) / 10005, 0.5, 0.03);
  std::ranges::sort(keys);
  EXPECT_TRUE(std::ranges::is_sorted(keys, {}, place_of_open_key));
  EXPECT_EQ(place_of_open_key(std::numeric_limits<int64_t>::min()), 0);
  EXPECT_EQ(place_of_open_key(std::numeric_limits<int64_t>::max()),
            (int64_t{1} << kOpenPlaceBits) - 1);
}

}  // namespace
}  // namespace trireme::parallel::inline internal
