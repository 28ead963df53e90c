#include "trireme/base/words.h"

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

TEST(NearestName, ALikelyNameIsNear) {
  EXPECT_EQ(likely_name(kNames, "train.stesp"), "train.steps");
  EXPECT_EQ(likely_name(kNames, "lora.rank"), "");
  EXPECT_EQ(likely_name(kNames, std::string(1 << 20, 'x')), "");
  const std::vector<std::string> commands = {"run", "train", "plan"};
  EXPECT_EQ(likely_name(commands, "rum"), "run");
  EXPECT_EQ(likely_name(commands, "trian"), "");  // two letters of five
  EXPECT_EQ(likely_name({}, "a"), "");
  EXPECT_EQ(did_you_mean(commands, "trai"), "; did you mean \"train\"?");
  EXPECT_EQ(did_you_mean(commands, "export"), "");
}

TEST(NearestName, IsEmptyWithoutNames) { EXPECT_EQ(nearest_name({}, "a"), ""); }

}  // namespace
}  // namespace trireme
