#include "trireme/base/locale/text.h"

#include <string>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Utf8, KnowsTheBytesOfACharacter) {
  EXPECT_EQ(utf8_character_bytes("a\xff"), 1u);
  EXPECT_EQ(utf8_character_bytes("é!"), 2u);
  EXPECT_EQ(utf8_character_bytes("漢字"), 3u);
  EXPECT_EQ(utf8_character_bytes("😀"), 4u);
  EXPECT_EQ(utf8_character_bytes(std::string(1, '\0')), 1u);
}

TEST(Utf8, RefusesWhatIsNoCharacter) {
  for (const char* text : {"", "\x80", "\xff", "\xc3", "\xc3(", "\xe2\x82", "\xf0\x9f\x98",
                           "\xc0\xaf" /* overlong */, "\xe0\x80\xaf", "\xf0\x80\x80\xaf",
                           "\xed\xa0\x80" /* surrogate */, "\xf4\x90\x80\x80" /* beyond */}) {
    EXPECT_EQ(utf8_character_bytes(text), 0u) << text;
  }
}

TEST(Utf8, CutsBetweenCharacters) {
  const std::string text = "a\u00e9\u6f22b";  // of 1, 2, 3 and 1 bytes
  for (const auto& [most, kept] :
       {std::pair{0, 0}, {1, 1}, {2, 1}, {3, 3}, {4, 3}, {5, 3}, {6, 6}, {7, 7}, {100, 7}}) {
    EXPECT_EQ(utf8_prefix_bytes(text, most), static_cast<size_t>(kept)) << most;
  }
  EXPECT_EQ(utf8_prefix_bytes(std::string(20, '\x80'), 10), 10u);
  EXPECT_EQ(utf8_prefix_bytes("", 10), 0u);
}

TEST(Utf8, KnowsABeginning) {
  for (const char* text : {"\xc3", "\xe2", "\xe2\x82", "\xf0\x9f", "\xf0\x9f\x98"}) {
    EXPECT_TRUE(is_utf8_beginning(text)) << text;
  }
  for (const char* text :
       {"", "a", "é", "\x80", "\xff", "\xc0", "\xe2(", "\xe0\x80", "\xed\xa0", "\xf4\x90"}) {
    EXPECT_FALSE(is_utf8_beginning(text)) << text;
  }
}

TEST(Utf8, KnowsAWholeText) {
  EXPECT_TRUE(is_utf8(""));
  EXPECT_TRUE(is_utf8("aé漢😀"));
  for (const char* text : {"a\xc3", "\xffz", "é\x80", "\xed\xa0\x80"}) {
    EXPECT_FALSE(is_utf8(text)) << text;
  }
}

}  // namespace
}  // namespace trireme
