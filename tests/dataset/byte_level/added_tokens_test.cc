#include "trireme/dataset/byte_level/added_tokens.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

// "text|#token|text": the parts in order.
std::string cut(std::vector<AddedToken> tokens, std::string_view text) {
  std::string parts;
  const auto add = [&](const std::string& part) { parts += (parts.empty() ? "" : "|") + part; };
  MatchMemory memory;
  AddedTokens(std::move(tokens))
      .split(
          text, memory, [&](std::string_view part) { add(std::string(part)); },
          [&](int32_t token, std::string_view) { add(concat("#", token)); });
  return parts;
}

TEST(AddedTokens, AreFoundAnywhere) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<a>"},
                                          {.id = 2, .content = "\u00E9"}};
  EXPECT_EQ(cut(tokens, "<a>x<a><a>y\u00E9"), "#1|x|#1|#1|y|#2");
  EXPECT_EQ(cut(tokens, "<a <b> <a"), "<a <b> <a");
  EXPECT_EQ(cut(tokens, ""), "");
  EXPECT_EQ(cut({}, "text"), "text");
}

TEST(AddedTokens, TheLongestCounts) {
  const std::vector<AddedToken> tokens = {
      {.id = 1, .content = "a"}, {.id = 2, .content = "ab"}, {.id = 3, .content = "abcd"}};
  EXPECT_EQ(cut(tokens, "abcd abc ac"), "#3| |#2|c |#1|c");
}

TEST(AddedTokens, TakeWhiteSpaceAlong) {
  EXPECT_EQ(cut({{.id = 1, .content = "<a>", .lstrip = true}}, "x \n<a> y"), "x|#1| y");
  EXPECT_EQ(cut({{.id = 1, .content = "<a>", .rstrip = true}}, "x <a>\u3000\t<a>y"), "x |#1|#1|y");
  EXPECT_EQ(cut({{.id = 1, .content = "<a>", .lstrip = true, .rstrip = true}}, " <a>  <a> "),
            "#1|#1");
}

TEST(AddedTokens, StandAloneAsAWord) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "my", .single_word = true}};
  EXPECT_EQ(cut(tokens, "my amy my_ (my) my\u00E9 \u00E9my my."),
            "#1| amy my_ (|#1|) my\u00E9 \u00E9my |#1|.");
}

TEST(AddedTokens, ManyThatBeginAlikeAreFoundQuickly) {
  std::vector<AddedToken> tokens;
  for (int32_t i = 0; i < 20'000; ++i)
    tokens.push_back({.id = i, .content = concat("<|reserved_", i, "|>")});
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "<|reserved_";
  EXPECT_EQ(cut(tokens, text + "12345|>"), text.substr(11) + "|#12345");
}

}  // namespace
}  // namespace trireme::dataset
