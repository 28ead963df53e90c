#include "trireme/launch/inject/injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

TEST(Words, AreSeparatedByBlanksAndSemicolons) {
  Words words(" kill rank=1;\t;stop ");
  std::string_view value;
  EXPECT_FALSE(words.take("stop"));
  EXPECT_TRUE(words.take("kill"));
  EXPECT_FALSE(words.take_value("ran", value));
  EXPECT_TRUE(words.take_value("rank", value));
  EXPECT_EQ(value, "1");
  EXPECT_EQ(words.next(), ";");
  EXPECT_EQ(words.next(), ";");
  EXPECT_EQ(words.next(), "stop");
  EXPECT_EQ(words.next(), "");
  EXPECT_EQ(words.next(), "");
}

TEST(Words, DurationsHaveAUnit) {
  const auto parse = [](std::string_view text) {
    const Words words(text);
    return words.duration(words.peek());
  };
  EXPECT_EQ(parse("20s"), 20s);
  EXPECT_EQ(parse("200ms"), 200ms);
  EXPECT_EQ(parse("1.5m"), 90s);
  EXPECT_EQ(parse("2h"), 2h);
  EXPECT_EQ(parse("0s"), 0s);
  for (const char* text : {"20", "s", "-1s", "1e3s", "1.2.3s", "31h30", "99999h", "nans"}) {
    EXPECT_THROW(parse(text), ConfigError) << text;
  }
}

TEST(Words, DurationTextIsReadBack) {
  for (const auto time : {1ms, 999ms, 1000ms, 1500ms, 60000ms, 90000ms, 3600000ms, 0ms}) {
    const std::string text = duration_text(time);
    const Words words(text);
    EXPECT_EQ(words.duration(words.peek()), time) << text;
  }
  EXPECT_EQ(duration_text(90s), "90s");
  EXPECT_EQ(duration_text(2min), "2m");
}

TEST(Words, ErrorShowsTheWordAndItsPlace) {
  const std::string text = "kill rnk=1\x1b";
  Words words(text);
  words.next();
  try {
    words.fail(words.peek(), "rank=N");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "--inject: \"rnk=1?\" at character 6 of \"kill rnk=1?\"; expected rank=N");
  }
}

}  // namespace
}  // namespace trireme::launch
