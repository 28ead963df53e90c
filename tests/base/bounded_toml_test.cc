#include "trireme/base/bounded_toml.h"

#include <gtest/gtest.h>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string copies_of(const std::string& text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

std::string toml_error_of(const std::string& text) {
  return harness::message_of<ConfigError>([&] { check_toml(text, "run.toml"); });
}

TEST(CheckToml, CountsDotsOfKeysAndNumbers) {
  const std::string most = copies_of("a.", kMaxTomlDots - 1) + "a = 1";
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

}  // namespace
}  // namespace trireme
