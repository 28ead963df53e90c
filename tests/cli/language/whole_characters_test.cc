#include "trireme/cli/language/whole_characters.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/locale/text.h"

namespace trireme::cli {
namespace {

// However the text is cut, nothing is lost and no piece ends within a character.
TEST(WholeCharacters, PiecesEndBetweenCharacters) {
  const std::string text = "a\u00e9\u20ac\U0001f600z\U0001f600";
  for (size_t size = 1; size <= text.size(); ++size) {
    WholeCharacters whole;
    std::string found;
    for (size_t at = 0; at < text.size(); at += size) {
      const std::string piece = whole.add(text.substr(at, size));
      EXPECT_TRUE(is_utf8(piece)) << size;
      found += piece;
    }
    EXPECT_EQ(whole.finish(), "");
    EXPECT_EQ(found, text);
  }
}

TEST(WholeCharacters, OtherBytesPass) {
  WholeCharacters whole;
  EXPECT_EQ(whole.add("\xff\x80"), "\xff\x80");
  EXPECT_EQ(whole.add("a\xe2"), "a");
  EXPECT_EQ(whole.add("b"),
            "\xe2"
            "b");
  EXPECT_EQ(whole.add("\xe2\x82"), "");
  EXPECT_EQ(whole.finish(), "\xe2\x82");
  EXPECT_EQ(whole.finish(), "");
}

}  // namespace
}  // namespace trireme::cli
