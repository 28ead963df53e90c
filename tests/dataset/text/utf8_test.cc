#include "trireme/dataset/text/documents.h"

#include <string>

#include <gtest/gtest.h>

namespace trireme::dataset {
namespace {

TEST(PlainPrefix, IsAllOfWellFormedText) {
  for (const std::string text : {"", "a", "tab\tline\r\n", "\u00E9", "\uFFFD", "\U0001F600",
                                 "\u0080\u07FF\u0800\uD7FF\uE000\uFFFF\U00010000\U0010FFFF"})
    EXPECT_EQ(plain_prefix(text), text.size()) << text;
}

TEST(PlainPrefix, EndsBeforeBytesThatAreNoUtf8) {
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xE2\x82", "\xED\xA0\x80",
        "\xF0\x8F\xBF\xBF", "\xF0\x9F\x98", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"})
    EXPECT_EQ(plain_prefix(std::string("ab\u00E9") + bad), 4u) << bad;
}

TEST(PlainPrefix, EndsBeforeWhatSentencePieceMisreads) {
  EXPECT_EQ(plain_prefix("a\u2581b"), 1u);
  EXPECT_EQ(plain_prefix("a\u2585b"), 1u);
  EXPECT_EQ(plain_prefix(std::string_view("a\0b", 3)), 1u);
  EXPECT_EQ(plain_prefix("a\u2582b"), 5u);
}

TEST(CutLength, IsBehindTheLastLineEndWithinTheLimit) {
  EXPECT_EQ(cut_length("ab\ncd\nef", 8), 8u);
  EXPECT_EQ(cut_length("ab\ncd\nef", 7), 6u);
  EXPECT_EQ(cut_length("ab\ncd\nef", 6), 6u);
  EXPECT_EQ(cut_length("ab\ncd\nef", 5), 3u);
}

TEST(CutLength, FallsBetweenCharactersWhereThereIsNoLineEnd) {
  const std::string text = "a\U0001F600\u00E9z";  // 1 + 4 + 2 + 1 bytes
  EXPECT_EQ(cut_length(text, 1), 1u);
  EXPECT_EQ(cut_length(text, 4), 1u);
  EXPECT_EQ(cut_length(text, 5), 5u);
  EXPECT_EQ(cut_length(text, 6), 5u);
  EXPECT_EQ(cut_length(text, 7), 7u);
}

TEST(CutLength, MakesProgressThroughAnything) {
  const std::string continuation(20, '\x80');
  for (size_t limit = 1; limit <= 20; ++limit) {
    EXPECT_GE(cut_length(continuation, limit), 1u);
    EXPECT_LE(cut_length(continuation, limit), limit);
  }
  EXPECT_EQ(cut_length("\U0001F600\U0001F600", 2), 2u);
}

}  // namespace
}  // namespace trireme::dataset
