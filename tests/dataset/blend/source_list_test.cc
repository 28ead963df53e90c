#include "trireme/dataset/blend/source_list.h"

#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/dataset/data.h"
#include "trireme/dataset/blend/blend.h"

namespace trireme::dataset {
namespace {

std::vector<int64_t> weights_of(const std::string& list) {
  std::vector<int64_t> weights;
  for (const ListedSource& source : parse_blend("data.sources", list)) {
    weights.push_back(source.weight);
  }
  return weights;
}

void expect_refusal(const std::string& list, std::vector<std::string> parts) {
  parts.emplace_back("data.sources");
  expect_config_error([&] { parse_blend("data.sources", list); }, parts);
}

TEST(SourceList, HasNamesPathsAndWeights) {
  EXPECT_EQ(parse_blend("data.sources", "code=data/code:0.7,web=data/web:0.3"),
            (std::vector<ListedSource>{{"code", "data/code", 7}, {"web", "data/web", 3}}));
  EXPECT_EQ(parse_blend("data.sources", " a-1 = x=y:z : 2 , b_2=/q r/s:1 ,"),
            (std::vector<ListedSource>{{"a-1", "x=y:z", 2}, {"b_2", "/q r/s", 1}}));
  EXPECT_EQ(parse_named_paths("data.validation_sets", "code=data/code:1,web=b"),
            (std::vector<ListedSource>{{"code", "data/code:1", 0}, {"web", "b", 0}}));
  EXPECT_EQ(listed_names("code=a:1, web=b"), (std::vector<std::string>{"code", "web"}));
  EXPECT_EQ(listed_names(""), std::vector<std::string>());
}

TEST(SourceList, WeightsAreTheSmallestWholeNumbersInTheirProportion) {
  EXPECT_EQ(weights_of("a=x:1"), (std::vector<int64_t>{1}));
  EXPECT_EQ(weights_of("a=x:17.5"), (std::vector<int64_t>{1}));
  EXPECT_EQ(weights_of("a=x:0.7,b=y:0.3"), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(weights_of("a=x:70,b=y:30.000000"), (std::vector<int64_t>{7, 3}));
  EXPECT_EQ(weights_of("a=x:.5,b=y:2.,c=z:01.5"), (std::vector<int64_t>{1, 4, 3}));
  EXPECT_EQ(weights_of("a=x:999999999999.999999,b=y:999999999999.999999"),
            (std::vector<int64_t>{1, 1}));
  EXPECT_EQ(weights_of("a=x:0.000001,b=y:0.999999"), (std::vector<int64_t>{1, 999'999}));
}

TEST(SourceList, OthersAreRoundedToMillionthsThatSumUp) {
  EXPECT_EQ(weights_of("a=x:0.333333,b=y:0.333333,c=z:0.333335"),
            (std::vector<int64_t>{333'333, 333'333, 333'334}));
  // 1234567 / 3580245, 2345678 / 3580245.
  EXPECT_EQ(weights_of("a=x:1234567,b=y:2345678"), (std::vector<int64_t>{344'828, 655'172}));
  // Equal rests: the first gets what is left.
  EXPECT_EQ(weights_of("a=x:1000001,b=y:1000001,c=z:1000000"),
            (std::vector<int64_t>{333'334, 333'333, 333'333}));
  std::string many;
  for (size_t i = 0; i < Blend::kMostParts; ++i) {
    many += "s" + std::to_string(i) + "=p:999999999999.9999" + std::to_string(10 + i) + ",";
  }
  const std::vector<int64_t> weights = weights_of(many);
  EXPECT_EQ(std::reduce(weights.begin(), weights.end()), Blend::kLongestPeriod);
  expect_refusal("a=x:0.000001,b=y:1", {"a", "less than a millionth", "raise its weight"});
}

TEST(SourceList, RefusesOtherTextsInOneLine) {
  expect_refusal("", {"0 entries", "expected 1 to 64", "such as"});
  expect_refusal("data/code", {"\"data/code\", without a name", "NAME=PATH:WEIGHT"});
  expect_refusal("a=x", {"a no weight", "\"a=x\""});
  expect_refusal("=x:1", {"the name \"\""});
  expect_refusal("1a=x:1", {"the name \"1a\"", "expected a letter"});
  expect_refusal("a.b=x:1", {"the name \"a.b\""});
  expect_refusal("a b=x:1", {"the name \"a b\""});
  expect_refusal("\xc3\xa4=x:1", {"the name"});
  expect_refusal(std::string(65, 'a') + "=x:1", {"at most 64"});
  expect_refusal("a=x:1,a=y:1", {"the name a twice"});
  expect_refusal("a=:1", {"a no path"});
  for (const char* const weight : {"0", "0.0", "-1", "+1", "nan", "inf", "1e3", "0x1", "", ".",
                                   "1.2.3", "1 2", "1234567890123", "0.1234567", "0,5", "one"}) {
    if (std::string(weight).find(',') != std::string::npos) continue;  // another entry
    expect_refusal("a=x:" + std::string(weight),
                   {"a the weight \"" + std::string(weight) + "\"", "a number above 0"});
  }
  std::string many;
  for (int i = 0; i < 65; ++i) many += "s" + std::to_string(i) + "=p:1,";
  expect_refusal(many, {"65 entries"});
  expect_refusal("a\x01=x:1", {"a?"});
  expect_config_error([] { parse_named_paths("data.validation_sets", "web"); },
                      {"data.validation_sets has \"web\"", "NAME=PATH for each"});
}

}  // namespace
}  // namespace trireme::dataset
