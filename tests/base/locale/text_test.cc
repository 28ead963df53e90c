#include "trireme/base/locale/text.h"

#include <cstdio>
#include <string>

#include <gtest/gtest.h>

#include "tests/harness/foreign_locale.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

TEST(Text, IsTheSameInAForeignLocale) {
  const harness::ForeignLocale german;
  std::ostringstream out;
  out << 5.51 << " " << 32896;
  ASSERT_EQ(out.str(), "5,51 32.896") << "the locale is not what this test is about";

  TextWriter writer;
  writer << 5.51 << " " << 32896;
  EXPECT_EQ(writer.str(), "5.51 32896");
  EXPECT_EQ(concat(5.51, " ", 32896), "5.51 32896");
  EXPECT_EQ(format("%.2f %g %d", 5.51, 1e-7, 32896), "5.51 1e-07 32896");

  TextReader reader("5.51 32896 1.5e3");
  double first = 0, last = 0;
  int middle = 0;
  reader >> first >> middle >> last;
  EXPECT_FALSE(reader.fail());
  EXPECT_EQ(first, 5.51);
  EXPECT_EQ(middle, 32896);
  EXPECT_EQ(last, 1500);
}

TEST(Text, IsAsLongAsItsArguments) {
  for (const size_t size : {0, 1, 255, 256, 5000}) {
    const std::string word(size, 'x');
    EXPECT_EQ(format("%s", word.c_str()), word);
  }
  EXPECT_EQ(format("100 %%"), "100 %");
}

}  // namespace
}  // namespace trireme
