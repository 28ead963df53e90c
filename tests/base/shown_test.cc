#include "trireme/base/shown.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Shown, IsShortAndHarmless) {
  EXPECT_EQ(shown(""), "");
  EXPECT_EQ(shown("d\u00e9j\u00e0 vu"), "d\u00e9j\u00e0 vu");
  EXPECT_EQ(shown("a\nb\x1b[2J\x7f"), "a?b?[2J?");
  EXPECT_EQ(shown(std::string(60, 'x')), std::string(60, 'x'));
  EXPECT_EQ(shown(std::string(61, 'x')), std::string(60, 'x') + "...");
}

}  // namespace
}  // namespace trireme
