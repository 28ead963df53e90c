#include "trireme/dataset/chat/values/characters.h"

#include <gtest/gtest.h>

namespace trireme::dataset::chat {
namespace {

TEST(Characters, AreReadForwardsAndBackwards) {
  const std::u32string characters = U"a\u00E9\u20AC\U0001F600\U0010FFFF";
  std::string text;
  for (const char32_t c : characters) append_character(text, c);
  EXPECT_EQ(text, "a\u00E9\u20AC\U0001F600\U0010FFFF");
  std::u32string forwards, backwards;
  for (size_t offset = 0; offset < text.size();) forwards.push_back(next_character(text, offset));
  for (size_t offset = text.size(); offset > 0;) {
    backwards.insert(backwards.begin(), previous_character(text, offset));
  }
  EXPECT_EQ(forwards, characters);
  EXPECT_EQ(backwards, characters);
  EXPECT_EQ(count_characters(text), 5u);
  EXPECT_EQ(character_offset(text, 2), 3u);
  EXPECT_EQ(character_offset(text, 9), text.size());
}

TEST(Characters, AreStrippedFromTheEnds) {
  EXPECT_EQ(strip(" \u2003a b\u00A0\n"), "a b");
  EXPECT_EQ(strip("xxaxx", "x", {.left = false}), "xxa");
  EXPECT_EQ(strip("\u00E9a\u00E8", "\u00E8"), "\u00E9a");
  EXPECT_EQ(strip("\u00E9\u00E9", "\u00E9"), "");
}

TEST(Characters, EndLinesAsInPython) {
  const std::string source = "test";
  const ChatTemplateLimits limits;
  chat::Run run(source, limits);
  using Lines = std::vector<std::string_view>;
  EXPECT_EQ(split_lines(run,
                        "a\r\nb\rc\n\nd\u2028e\x1C"
                        "f"),
            (Lines{"a", "b", "c", "", "d", "e", "f"}));
  EXPECT_EQ(split_lines(run, "a\r\nb\n", true), (Lines{"a\r\n", "b\n"}));
  EXPECT_EQ(split_lines(run, ""), Lines{});
}

TEST(Characters, ArePrintableUnlessControlOrSpace) {
  EXPECT_TRUE(is_printable(U'\u00E9'));
  for (const char32_t c : U"\n\u007F\u00A0\u200B\u2028\uE000\u0378") EXPECT_FALSE(is_printable(c));
}

}  // namespace
}  // namespace trireme::dataset::chat
