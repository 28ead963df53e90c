#include "trireme/dataset/byte_level/byte_level_bpe.h"

#include <gtest/gtest.h>

namespace trireme::dataset {
namespace {

std::string form_of(std::string_view text) {
  std::string memory;
  return std::string(composed(text, memory));
}

TEST(Composition, ComposesLettersAndMarks) {
  EXPECT_EQ(form_of("e\u0301"), "\u00E9");
  EXPECT_EQ(form_of("xA\u030Ay"), "x\u00C5y");
  EXPECT_EQ(form_of("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(form_of("\u304B\u3099"), "\u304C");
  EXPECT_EQ(form_of("\u2126\u212B"), "\u03A9\u00C5");
  EXPECT_EQ(form_of("\u0958"), "\u0915\u093C");  // is excluded from composition
}

TEST(Composition, OrdersMarksByTheirClasses) {
  EXPECT_EQ(form_of("q\u0307\u0323"), "q\u0323\u0307");
  EXPECT_EQ(form_of("a\u0301\u0323"), "\u1EA1\u0301");
}

TEST(Composition, LeavesTextInItsForm) {
  for (const char* text :
       {"", "plain", "\u00E9\u00FF", "\u6F22\u5B57", "\U0001F600\u200D", "\u0301"})
    EXPECT_EQ(form_of(text), text);
  std::string memory;
  const std::string_view plain = "na\u00EFve";
  EXPECT_EQ(composed(plain, memory).data(), plain.data());
}

TEST(Composition, TakesManyMarksInAnyOrder) {
  std::string text = "a";
  std::string sorted = "\u1EA1";
  for (int i = 0; i < 300'000; ++i) text += i % 2 == 0 ? "\u0315" : "\u0323";
  for (int i = 0; i < 149'999; ++i) sorted += "\u0323";
  for (int i = 0; i < 150'000; ++i) sorted += "\u0315";
  EXPECT_TRUE(form_of(text) == sorted);
}

}  // namespace
}  // namespace trireme::dataset
