#include "trireme/base/bounded_toml.h"

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
