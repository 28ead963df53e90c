#include "trireme/launch/jobs/quoted.h"

#include <cstdio>

#include <gtest/gtest.h>

#include "tests/comm/errors.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

// What a shell's printf gets as its arguments.
std::string through_shell(const std::string& words) {
  FILE* const pipe = popen(("printf '<%s>' " + words).c_str(), "r");
  std::string text;
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  pclose(pipe);
  return text;
}

TEST(Quoted, ShellWordsComeOutAsTheyWere) {
  const std::vector<std::string> words = {"run.toml", "",     " ",   "it's", "''",    "$HOME",
                                          "$(id)",    "`id`", "a;b", "a\\b", "\"x\"", "*",
                                          "~",        "a=b",  "#",   "é",    "&",     "!x"};
  std::string expected;
  for (const std::string& word : words) expected += "<" + word + ">";
  EXPECT_EQ(through_shell(shell_words(words)), expected);
}

TEST(Quoted, PlainShellWordsStayReadable) {
  EXPECT_EQ(shell_word("--train.steps=10"), "--train.steps=10");
  EXPECT_EQ(shell_word("runs/a-1_b.toml"), "runs/a-1_b.toml");
  EXPECT_EQ(shell_word("PATH=x"), "'PATH=x'") << "an assignment where a command is expected";
}

TEST(Quoted, YamlTextIsAsciiWithItsDollarsDoubled) {
  EXPECT_EQ(yaml_text(""), "\"\"");
  EXPECT_EQ(yaml_text("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(yaml_text("$(id) ${X} $$"), "\"$$(id) $${X} $$$$\"");
  EXPECT_EQ(yaml_text("\u00e9\u2028\U0001f6a3"), "\"\\U000000e9\\U00002028\\U0001f6a3\"");
  EXPECT_EQ(yaml_list({"no", "a"}), "[\"no\", \"a\"]");
  EXPECT_EQ(yaml_list({}), "[]");
}

TEST(Quoted, CommentsAreOneLineOfAsciiForEveryReader) {
  EXPECT_EQ(comment_text("runs/a \\\"$x\".toml"), "runs/a \\\"$x\".toml");
  // Line and paragraph separators, a byte order mark, and a mark that turns the direction of text.
  EXPECT_EQ(comment_text("a\u2028b\u2029c\ufeff\u202e"),
            "a\\U00002028b\\U00002029c\\U0000feff\\U0000202e");
  EXPECT_ERROR(ConfigError, check_quotable("it", "a\u0085b"), "it is \"");
}

TEST(Quoted, TextThatNoFileMayHoldIsRefused) {
  check_quotable("it", "é $x");
  for (const std::string& text : {std::string("a\nb"), std::string("\033[2J"), std::string("\xff"),
                                  std::string("a\0b", 3), std::string(4097, 'x')}) {
    EXPECT_ERROR(ConfigError, check_quotable("it", text), "it is \"");
  }
  check_directive_word("--partition", "gpu_2.a,b");
  for (const std::string& text :
       {std::string(), std::string("a b"), std::string("-a"), std::string("a#"), std::string("a\n"),
        std::string("a;b"), std::string("é"), std::string(256, 'x')}) {
    EXPECT_ERROR(ConfigError, check_directive_word("--partition", text), "--partition is \"");
  }
}

}  // namespace
}  // namespace trireme::launch
