#include "trireme/watch/serve/parameters.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::watch {
namespace {

TEST(Parameters, AreCheckedBeforeUse) {
  const Parameters parameters({{"run", "3"},
                               {"name", "a"},
                               {"name", "b"},
                               {"time", "1.5"},
                               {"bad", "3x"},
                               {"empty", ""},
                               {"huge", "99999999999999999999"}});
  EXPECT_EQ(parameters.whole("run", 0, 0, 5), 3);
  EXPECT_EQ(parameters.whole("none", 7, 0, 5), 7);
  EXPECT_EQ(parameters.whole("empty", 7, 0, 5), 7);
  EXPECT_THROW(parameters.whole("run", 0, 0, 2), ConfigError);
  EXPECT_THROW(parameters.whole("bad", 0, 0, 5), ConfigError);
  EXPECT_THROW(parameters.whole("huge", 0, 0, 5), ConfigError);
  EXPECT_EQ(parameters.number("time"), 1.5);
  EXPECT_FALSE(parameters.number("none"));
  EXPECT_THROW(parameters.number("bad"), ConfigError);
  EXPECT_THROW(Parameters(Parameters::Pairs{{"a", "inf"}}).number("a"), ConfigError);
  EXPECT_EQ(parameters.texts("name"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parameters.text("name"), "b");
}

TEST(Parameters, TextsInAQueryAreEscaped) {
  EXPECT_EQ(url_text("rank/3/own_seconds"), "rank/3/own_seconds");
  EXPECT_EQ(url_text("a b&\xc3\xa9"), "a%20b%26%C3%A9");
}

}  // namespace
}  // namespace trireme::watch
