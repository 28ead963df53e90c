#include "trireme/base/svg.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(Svg, TextFromOutsideEndsNoElement) {
  SvgFile file;
  file.text(1, 2.5, "</svg>\"&", "middle");
  file.box(0, 0, 3, 4, "red", "<b>");
  const std::string text = file.finish(10, 20);
  EXPECT_NE(text.find("y=\"2.5\" text-anchor=\"middle\">&lt;/svg&gt;&quot;&amp;</text>"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("<title>&lt;b&gt;</title>"), std::string::npos) << text;
  EXPECT_EQ(text.find("<svg xmlns="), 0U);
  EXPECT_EQ(text.find("</svg>"), text.size() - 7);
}

TEST(Svg, AnAxisHasAtMostTenTicks) {
  for (const double span : {0.003, 1.0, 10.0, 10.1, 20.0, 20.1, 50.0, 51.0, 7e9}) {
    const double count = span / tick_step(span);
    EXPECT_LE(count, 10) << span;
    EXPECT_GE(count, 4) << span;
  }
  EXPECT_EQ(tick_step(100), 10);
  EXPECT_EQ(tick_step(101), 20);
  EXPECT_EQ(tick_step(201), 50);
}

}  // namespace
}  // namespace trireme
