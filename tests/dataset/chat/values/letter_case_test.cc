#include "trireme/dataset/chat/values/letter_case.h"

#include <gtest/gtest.h>

namespace trireme::dataset::chat {
namespace {

TEST(LetterCase, KnowsUnicodesSpecialCases) {
  EXPECT_EQ(upper("stra\u00DFe \uFB01 \u0149 \u1F80"), "STRASSE FI \u02BCN \u1F08\u0399");
  EXPECT_EQ(lower("\u0130I\u00C9"), "i\u0307i\u00E9");
  EXPECT_EQ(capitalize("\u01C6UR \u00DF"), "\u01C5ur \u00DF");
  EXPECT_EQ(title("\uFB01nd \u00DFa"), "Find Ssa");
  EXPECT_EQ(title("\u10D0"), "\u10D0");  // Georgian has capitals, but no title case
}

TEST(LetterCase, WritesTheFinalSigmaAtTheEndOfAWord) {
  EXPECT_EQ(lower("\u039F\u03A3 \u039F\u03A3\u0391 \u03A3"),
            "\u03BF\u03C2 \u03BF\u03C3\u03B1 \u03C3");
  EXPECT_EQ(lower("A'\u03A3' \u0391\u03A3.\u0391"), "a'\u03C2' \u03B1\u03C3.\u03B1");
}

TEST(LetterCase, BeginsWordsAsPythonAndJinjaDo) {
  EXPECT_EQ(title("it's a 2nd-hand (car)"), "It'S A 2Nd-Hand (Car)");
  EXPECT_EQ(title_words("it's a 2nd-hand (car)"), "It's A 2nd-Hand (Car)");
  EXPECT_EQ(capitalize("hELLO World"), "Hello world");
}

TEST(LetterCase, IsThatOfTextsWithLetters) {
  EXPECT_TRUE(is_upper("A1!"));
  EXPECT_FALSE(is_upper("1!"));
  EXPECT_FALSE(is_upper("Aa"));
  EXPECT_TRUE(is_lower("a\u00AA\u2170"));
  EXPECT_FALSE(is_lower("\u01C5"));
}

}  // namespace
}  // namespace trireme::dataset::chat
