#include "trireme/tasks/language/expert_report.h"

#include <regex>

#include <gtest/gtest.h>

namespace trireme::tasks {
namespace {

int64_t count(const std::string& text, const std::string& what) {
  const std::regex found(what);
  return std::distance(std::sregex_iterator(text.begin(), text.end(), found), {});
}

TEST(DrawExperts, HasACellForEachExpertOfEachBlock) {
  const std::string svg = draw_experts({{1, {0, 1, 2}}, {3, {4, 0.25, 1}}}, "steps 1 to 5");
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_EQ(count(svg, "<title>"), 6);
  EXPECT_EQ(count(svg, "steps 1 to 5"), 1);
  EXPECT_EQ(count(svg, "layer 3, expert 0: 4 of an even share"), 1);
  // Orange for none, white for an even share, blue for four times it.
  EXPECT_EQ(count(svg, "fill=\"rgb\\(230,159,0\\)\"><title>"), 2);
  EXPECT_EQ(count(svg, "fill=\"rgb\\(255,255,255\\)\"><title>"), 2);
  EXPECT_EQ(count(svg, "fill=\"rgb\\(0,114,178\\)\"><title>"), 1);
}

// Labels of hundreds of narrow columns would lie on each other.
TEST(DrawExperts, NamesSomeOfManyExperts) {
  const std::string svg = draw_experts({{0, std::vector<double>(256, 1.0)}}, "many");
  EXPECT_EQ(count(svg, "<title>"), 256);
  EXPECT_LT(count(svg, "<text "), 40);
}

}  // namespace
}  // namespace trireme::tasks
