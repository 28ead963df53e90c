#include "trireme/launch/journal/log_reader.h"

#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using Ranges = std::vector<std::pair<int, int>>;

TEST(LogQuery, ReadsRanks) {
  EXPECT_EQ(parse_ranks("3", "--rank"), (Ranges{{3, 3}}));
  EXPECT_EQ(parse_ranks("0,5-7,9", "--rank"), (Ranges{{0, 0}, {5, 7}, {9, 9}}));
  std::string many = "1";
  for (int i = 0; i < 5000; ++i) many += ",1";
  for (const std::string& text :
       {std::string(), std::string("x"), std::string("-1"), std::string("7-5"), std::string("1,"),
        std::string(",1"), std::string("1-2-3"), std::string("99999999999"), many,
        std::string("1 2"), std::string("32768"), std::string("3-")}) {
    EXPECT_THROW(parse_ranks(text, "--rank"), ConfigError) << text.substr(0, 20);
  }
}

TEST(LogQuery, FindsPatterns) {
  EXPECT_TRUE(parse_pattern("loss (nan|inf)", "--grep")("step 5 loss nan"));
  EXPECT_FALSE(parse_pattern("loss (nan|inf)", "--grep")("step 5 loss 2.5"));
  EXPECT_TRUE(parse_pattern("", "--grep")("anything"));
  EXPECT_TRUE(parse_pattern("a{2,3}", "--grep")("caab"));
  EXPECT_TRUE(parse_pattern("b$", "--grep")(std::string_view("a\0b", 3)));
  EXPECT_TRUE(parse_pattern("\\\\1", "--grep")("x\\1"));  // a backslash and a 1
}

TEST(LogQuery, RefusesBadPatternsInOneLine) {
  for (const std::string& pattern :
       {std::string("("), std::string("[a"), std::string("a{2"), std::string("*)("),
        std::string("a{1,200}{1,200}"), std::string("((a{99}){99}){99}"), std::string("(a)\\1"),
        std::string(2000, 'a'), std::string("a{99999999999999999999}"),
        std::string("a{6}{9223372036854775807}"), std::string("a{2,1}")}) {
    try {
      parse_pattern(pattern, "--grep");
      ADD_FAILURE() << pattern.substr(0, 50);
    } catch (const ConfigError& error) {
      const std::string message = error.what();
      EXPECT_EQ(message.find("--grep "), 0u);
      EXPECT_LT(message.size(), 400u);
    }
  }
}

// The text is a stranger's: it must not take long, nor the stack.
TEST(LogQuery, SearchesHostileTextsInBoundedTime) {
  const std::string text(8192, 'a');
  EXPECT_FALSE(parse_pattern("(a*)*b", "--grep")(text));
  EXPECT_FALSE(parse_pattern("(a|aa)+c", "--grep")(text));
}

}  // namespace
}  // namespace trireme::launch
