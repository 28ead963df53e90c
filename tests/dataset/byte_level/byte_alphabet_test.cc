#include "trireme/dataset/byte_level/tokenizer_file.h"

#include <gtest/gtest.h>

namespace trireme::dataset {
namespace {

TEST(ByteAlphabet, SpellsEveryByteByACharacterOfItsOwn) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += spelled_byte(static_cast<uint8_t>(byte));
  const auto bytes = spelled_bytes(all);
  ASSERT_TRUE(bytes.has_value());
  ASSERT_EQ(bytes->size(), 256u);
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(static_cast<unsigned char>((*bytes)[static_cast<size_t>(byte)]), byte);
  }
}

TEST(ByteAlphabet, IsThatOfGpt2) {
  EXPECT_EQ(spelled_byte('a'), "a");
  EXPECT_EQ(spelled_byte('\n'), "\u010A");
  EXPECT_EQ(spelled_byte(' '), "\u0120");
  EXPECT_EQ(spelled_byte(0x7F), "\u0121");
  EXPECT_EQ(spelled_byte(0xA0), "\u0142");
  EXPECT_EQ(spelled_byte(0xAD), "\u0143");
  EXPECT_EQ(spelled_byte(0xE9), "\u00E9");
}

TEST(ByteAlphabet, HasNoOtherCharacters) {
  EXPECT_EQ(spelled_bytes(""), "");
  for (const char* text : {"a b", "\n", "\u0144", "\u00AD", "\u2581", "\U0001F600", "a\xC4"})
    EXPECT_FALSE(spelled_bytes(text).has_value()) << text;
}

}  // namespace
}  // namespace trireme::dataset
