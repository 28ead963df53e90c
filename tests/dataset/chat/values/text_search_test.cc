#include "trireme/dataset/chat/values/text_search.h"

#include <string>

#include <gtest/gtest.h>

namespace trireme::dataset::chat {
namespace {

// Every part of two letters up to a length, in every text.
std::string letters(unsigned bits, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i) text.push_back(bits >> i & 1 ? 'b' : 'a');
  return text;
}

TEST(TextSearch, FindsWhatStandardSearchFinds) {
  for (size_t length = 1; length <= 5; ++length) {
    for (unsigned part_bits = 0; part_bits < 1u << length; ++part_bits) {
      const std::string part = letters(part_bits, length);
      const TextSearch forwards(part), backwards(part, SearchFrom::kRight);
      for (unsigned bits = 0; bits < 1u << 9; ++bits) {
        const std::string text = letters(bits, 9);
        EXPECT_EQ(forwards.find(text), text.find(part)) << part << " in " << text;
        EXPECT_EQ(forwards.find(text, 3), text.find(part, 3)) << part << " in " << text;
        EXPECT_EQ(backwards.find(text), text.rfind(part)) << part << " in " << text;
      }
    }
  }
}

TEST(TextSearch, FindsNothingInAnEmptyText) {
  EXPECT_EQ(TextSearch("ab").find(""), TextSearch::kNone);
  EXPECT_EQ(TextSearch("a", SearchFrom::kRight).find(""), TextSearch::kNone);
  EXPECT_TRUE(has_part("", ""));
  EXPECT_FALSE(has_part("a", "ab"));
}

}  // namespace
}  // namespace trireme::dataset::chat
