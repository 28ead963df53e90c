#include "trireme/train/config/field_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/train/config/config.h"

namespace trireme::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string repeated(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string toml_error_of(const std::string& text) {
  return harness::message_of<ConfigError>([&] { check_toml(text, "run.toml"); });
}

TEST(CheckToml, CountsDotsOfKeysAndNumbers) {
  const std::string most = repeated("a.", kMaxTomlDots - 1) + "a = 1";
  EXPECT_EQ(toml_error_of(most), "");
  EXPECT_EQ(toml_error_of("\n" + most + ".5"), "");
  EXPECT_EQ(toml_error_of("\n" + most + ".5\n. "),
            "run.toml:3: the config has more than 4096 dots outside of strings; expected [section] "
            "and below it key = value");
}

TEST(CheckToml, DoesNotCountDotsOfStringsAndComments) {
  const std::string dots(kMaxTomlDots + 1, '.');
  for (const std::string& text :
       {"# " + dots, "a = \"" + dots + "\"", "a = '" + dots + "'", "a = \"\"\"\n" + dots + "\"\"\"",
        "a = '''\n'" + dots + "'''", "a = \"\\\"" + dots + "\"", "a = '\\" + dots + "'",
        "a = \"\"\"\\\"\"\"" + dots + "\"\"\"\"\" # '"}) {
    EXPECT_EQ(toml_error_of(text), "") << text.substr(0, 12);
  }
  for (const std::string& text :
       {"# \n" + dots, "a = \"\" " + dots, "a = ''" + dots, "a = '\\'" + dots, "a = \"b\n" + dots,
        "a = \"\"\"\"\"\"" + dots, "a = '''#'''" + dots}) {
    EXPECT_NE(toml_error_of(text), "") << text.substr(0, 12);
  }
}

TEST(CheckToml, RefusesALongText) {
  EXPECT_EQ(toml_error_of(std::string(kMaxTomlBytes, ' ')), "");
  EXPECT_EQ(toml_error_of(std::string(kMaxTomlBytes + 1, ' ')),
            "run.toml: the config has 1048577 bytes; expected at most 1048576");
}

// The parser and what it builds recurse as deep as tables and arrays lie in one another.
TEST(CheckToml, NoNestingEndsInTheStack) {
  const std::vector<std::string> texts = {
      repeated("a.", 60'000) + "a = 1",
      "[" + repeated("a.", 60'000) + "a]",
      "[[" + repeated("a.", 60'000) + "a]]",
      repeated("\"a\" . ", 60'000) + "a = 1",
      "a = " + repeated("[", 100'000),
      "a = " + repeated("{a = ", 100'000),
      "a = " + repeated("[{a.a.a.a = ", 10'000),
      "a = {" + repeated("a.", 60'000) + "a = 1}",
      "x = {b = \"\"\"c\"\"\"\", " + repeated("a.", 60'000) + "a = 1}",
      "x = {b = \"\"\"c\"\"\"\"\", " + repeated("a.", 60'000) + "a = 1}",
      "x = {b = \'\'\'c\'\'\'\', " + repeated("a.", 60'000) + "a = 1}",
      "x = {b = \"\"\"\"\"\"\"\", " + repeated("a.", 60'000) + "a = 1}",
  };
  for (const std::string& text : texts) {
    const std::string error =
        harness::message_of<ConfigError>([&] { parse_config(text, "run.toml"); });
    EXPECT_THAT(error, AllOf(HasSubstr("run.toml"), Not(HasSubstr("\n")))) << text.substr(0, 20);
    EXPECT_LT(error.size(), 300);
  }
  // As many as there may be: refused for what they say.
  EXPECT_THAT(harness::message_of<ConfigError>(
                  [] { parse_config(repeated("a.", kMaxTomlDots) + "a = 1", "run.toml"); }),
              HasSubstr("unknown key"));
}

}  // namespace
}  // namespace trireme::train
