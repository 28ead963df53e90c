#include "trireme/parallel/embedding/id_exchange.h"

#include <limits>
#include <map>

#include <gtest/gtest.h>

#include "tests/harness/draw.h"

namespace trireme::parallel {
namespace {

// Few ids are sorted whole, many by digits, wide ones by comparisons.
TEST(IdGroups, HaveEachIdOnceWithItsPlacesInOrder) {
  harness::Draw draw(1);
  for (const int64_t limit :
       {int64_t{1}, int64_t{3}, int64_t{300}, int64_t{70000}, int64_t{1} << 32,
        (int64_t{1} << 32) + 1, std::numeric_limits<int64_t>::max()}) {
    for (const size_t count : {0, 1, 7, 255, 256, 1000}) {
      std::vector<int64_t> values(count);
      std::map<int64_t, std::vector<int32_t>> expected;
      for (size_t i = 0; i < count; ++i) {
        values[i] = i == 0 ? limit - 1 : draw.below(limit);
        if (draw.below(3) == 0) values[i] = values[draw.below(i + 1)];
        expected[values[i]].push_back(static_cast<int32_t>(i));
      }
      const IdGroups groups = group_ids(values, limit);
      ASSERT_EQ(groups.size(), std::ssize(expected));
      ASSERT_EQ(groups.first.size(), expected.size() + 1);
      const std::vector<int32_t> group_of_place = groups.group_of_place();
      size_t i = 0;
      for (const auto& [id, places] : expected) {
        EXPECT_EQ(groups.ids[i], id);
        EXPECT_EQ(std::vector<int32_t>(groups.places.begin() + groups.first[i],
                                       groups.places.begin() + groups.first[i + 1]),
                  places);
        for (const int32_t place : places) {
          EXPECT_EQ(group_of_place[static_cast<size_t>(place)], static_cast<int32_t>(i));
        }
        ++i;
      }
    }
  }
}

TEST(IdGroups, OfNoIdsAreNone) {
  const IdGroups groups = group_ids({}, 0);
  EXPECT_EQ(groups.size(), 0);
  EXPECT_EQ(groups.first, std::vector<int64_t>{0});
}

}  // namespace
}  // namespace trireme::parallel
