#include "trireme/base/nearest_name.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme {
namespace {

const std::vector<std::string> kNames = {"train.steps", "train.seed", "data.seed"};

TEST(NearestName, CountsInsertionsDeletionsAndReplacements) {
  EXPECT_EQ(nearest_name(kNames, "train.step"), "train.steps");
  EXPECT_EQ(nearest_name(kNames, "train.sed"), "train.seed");
  EXPECT_EQ(nearest_name(kNames, "dato.seed"), "data.seed");
  EXPECT_EQ(nearest_name(kNames, "data.seed"), "data.seed");
}

TEST(NearestName, TakesTheFirstOfEquals) {
  const std::vector<std::string> names = {"ab", "ac"};
  EXPECT_EQ(nearest_name(names, "a"), "ab");
  EXPECT_EQ(nearest_name(names, ""), "ab");
}

TEST(NearestName, ComparesTheBeginningOfLongTexts) {
  EXPECT_EQ(nearest_name(kNames, std::string(1 << 20, 'x')), "train.steps");
}

TEST(NearestName, IsEmptyWithoutNames) { EXPECT_EQ(nearest_name({}, "a"), ""); }

}  // namespace
}  // namespace trireme
