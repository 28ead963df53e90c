#include "trireme/base/locale/text.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/harness/foreign_locale.h"

namespace trireme {
namespace {

std::string printed() {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f", 5.51);
  return text.data();
}

std::string streamed() {
  std::ostringstream out;
  out << 5.51;
  return out.str();
}

TEST(ClassicThread, IsForTheCFunctionsOfOneThreadAndAScope) {
  const harness::ForeignLocale german;
  ASSERT_EQ(printed(), "5,51");
  {
    const ClassicThread classic;
    EXPECT_EQ(printed(), "5.51");
    EXPECT_EQ(std::strtod("5.51", nullptr), 5.51);
    EXPECT_EQ(streamed(), "5,51");
    std::string elsewhere;
    std::thread([&] { elsewhere = printed(); }).join();
    EXPECT_EQ(elsewhere, "5,51");
    { const ClassicThread again; }
    EXPECT_EQ(printed(), "5.51");
  }
  EXPECT_EQ(printed(), "5,51");
}

TEST(ClassicProcess, IsForAllAndGivesBackBothLocales) {
  const harness::ForeignLocale german;
  {
    const ClassicProcess classic;
    EXPECT_EQ(printed(), "5.51");
    EXPECT_EQ(streamed(), "5.51");
  }
  EXPECT_EQ(printed(), "5,51");
  EXPECT_EQ(streamed(), "5,51");
  // A program may set the locale of C alone.
  std::locale::global(std::locale::classic());
  std::setlocale(LC_NUMERIC, "de_DE.UTF-8");
  {
    const ClassicProcess classic;
    EXPECT_EQ(printed(), "5.51");
  }
  EXPECT_EQ(printed(), "5,51");
  EXPECT_EQ(streamed(), "5.51");
  std::setlocale(LC_ALL, "C");
}

}  // namespace
}  // namespace trireme
