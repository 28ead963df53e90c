#include "trireme/parallel/learner/graph_drawing.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/learner/base_graph.h"

namespace trireme::parallel {
namespace {

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

TEST(GraphDrawing, ShowsEveryRoundLearnerAndEdge) {
  const std::string svg = draw_svg(make_simple_base_graph(5, 1));
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_EQ(count(svg, "<circle"), 5 * 5);
  EXPECT_EQ(count(svg, "edges</title>"), 5);
  EXPECT_EQ(count(svg, "<path"), 2 + 2 + 1 + 2 + 2);  // one path for both directions
  EXPECT_EQ(count(svg, "stroke-dasharray"), 1 + 1 + 3 + 1 + 1);
  EXPECT_NE(svg.find("exact after 5 rounds"), std::string::npos);
  EXPECT_NE(svg.find("round 2, weight 0.8"), std::string::npos);
}

TEST(GraphDrawing, HasAnArrowForAnEdgeInOneDirection) {
  const std::string svg = draw_svg(make_graph("a<b", 2, {{{0, 1, 0.5}, {1, 0, 0.25}}}));
  EXPECT_EQ(count(svg, "<path"), 2);
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  EXPECT_NE(svg.find("push-sum"), std::string::npos);
  EXPECT_NE(svg.find("weights 0.25 and 0.5"), std::string::npos);
  EXPECT_NE(draw_svg(make_graph("alone", 2, {{}})).find("not connected"), std::string::npos);
}

TEST(GraphDrawing, IsBounded) {
  EXPECT_NE(draw_svg(make_graph("many", 2, std::vector<GraphRound>(100))).find("and 52 more"),
            std::string::npos);
  EXPECT_THROW(draw_svg(make_ring_graph(kMostDrawnLearners + 1)), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
