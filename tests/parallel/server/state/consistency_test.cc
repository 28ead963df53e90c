#include "trireme/parallel/server/state/consistency.h"

#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

TEST(Consistency, CountsAddUpAndAreJson) {
  StalenessCounts all{{0, 3}};
  add(all, {{0, 2}, {4, 1}});
  EXPECT_EQ(to_json(all), "{\"0\": 5, \"4\": 1}");
  EXPECT_EQ(to_json({}), "{}");
  EXPECT_TRUE(Consistency{0}.is_synchronous());
  EXPECT_FALSE(Consistency{kAsynchronous}.is_synchronous());
}

}  // namespace
}  // namespace trireme::parallel
