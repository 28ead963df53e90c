#include "trireme/parallel/learner/graph_drawing.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/svg.h"
#include "trireme/parallel/learner/graph_check.h"

namespace trireme::parallel {
namespace {

constexpr double kEdge = 16;  // around all
constexpr double kDot = 9;    // radius of a learner
constexpr int kPanelsPerRow = 4;
constexpr double kLine = 1.5 * SvgFile::kFontSize;
// Blue and orange that colour-blind people can tell apart; Okabe and Ito 2008.
constexpr const char* kBothWays = "#0072b2";
constexpr const char* kOneWay = "#d55e00";

class RoundPictures {
 public:
  explicit RoundPictures(const LearnerGraph& graph)
      : graph_(graph), radius_(std::max(50.0, 4.2 * graph.num_learners)) {}

  std::string draw() {
    head();
    const int drawn = std::min(graph_.period(), kMostDrawnRounds);
    for (int i = 0; i < drawn; ++i) {
      panel(i, kEdge + (i % kPanelsPerRow) * panel_width(),
            kEdge + 4 * kLine + (i / kPanelsPerRow) * panel_height());
    }
    const int rows = (drawn + kPanelsPerRow - 1) / kPanelsPerRow;
    const double bottom = kEdge + 4 * kLine + rows * panel_height();
    if (drawn < graph_.period()) {
      out_.text(kEdge, bottom + kLine, concat("and ", graph_.period() - drawn, " more rounds"));
    }
    constexpr double kWordsWidth = 640;  // of the head
    const double width = std::max(kWordsWidth, std::min(drawn, kPanelsPerRow) * panel_width());
    return out_.finish(width + 2 * kEdge, bottom + 2 * kLine);
  }

 private:
  struct Point {
    double x, y;
  };

  double panel_width() const { return 2 * (radius_ + 2 * kDot) + kEdge; }
  double panel_height() const { return panel_width() + kLine; }

  void head() {
    const GraphReport report = report_on(graph_);
    out_.text(kEdge, kEdge + kLine, graph_.name, "start", R"(font-weight="bold")");
    const std::string speed =
        report.exact_after >= 0 ? concat("exact after ", report.exact_after, " rounds")
        : report.is_connected   ? format("a period of %d rounds shrinks disagreement to %.3g of it",
                                         graph_.period(), report.contraction)
                                : std::string("not connected: learners never agree");
    out_.text(kEdge, kEdge + 2 * kLine,
              concat(graph_.kind == MixingKind::kDoublyStochastic
                         ? "doubly stochastic"
                         : "column stochastic, with push-sum weights",
                     "; ", speed, "; at most ", report.most_sends, " sends per learner and round"));
    out_.line(kEdge, kEdge + 2.7 * kLine, kEdge + 24, kEdge + 2.7 * kLine, kBothWays);
    out_.text(kEdge + 30, kEdge + 3 * kLine, "both ways, same weight");
    out_.line(kEdge + 200, kEdge + 2.7 * kLine, kEdge + 224, kEdge + 2.7 * kLine, kOneWay);
    out_.text(kEdge + 230, kEdge + 3 * kLine, "one way, towards the arrow");
  }

  void panel(int number, double left, double top) {
    const GraphRound& round = graph_.round(number);
    out_.box(left, top, panel_width() - kEdge, panel_height() - kEdge, "#f7f7f7",
             concat("round ", number, ": ", round.size(), " edges"));
    out_.text(left + 6, top + kLine, concat("round ", number, weights_of(round)));
    const Point centre{left + (panel_width() - kEdge) / 2,
                       top + kLine + (panel_width() - kEdge) / 2};
    std::vector<bool> takes_part(static_cast<size_t>(graph_.num_learners), false);
    for (const GraphEdge& edge : round) {
      takes_part[static_cast<size_t>(edge.from)] = takes_part[static_cast<size_t>(edge.to)] = true;
      draw_edge(edge, round, place(centre, edge.from), place(centre, edge.to));
    }
    for (int i = 0; i < graph_.num_learners; ++i) {
      const Point at = place(centre, i);
      out_.circle(at.x, at.y, kDot,
                  takes_part[static_cast<size_t>(i)]
                      ? R"(fill="white" stroke="#333")"
                      : R"(fill="white" stroke="#888" stroke-dasharray="3 2")");
      out_.text(at.x, at.y + SvgFile::kFontSize / 3, std::to_string(i), "middle");
    }
  }

  // ", weights 0.333 and 0.5", of at most three different ones.
  static std::string weights_of(const GraphRound& round) {
    std::vector<std::string> all;
    for (const GraphEdge& edge : round) all.push_back(format("%.3g", edge.weight));
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    if (all.empty()) return ", nobody sends";
    if (all.size() > 3) return concat(", weights ", all.front(), " to ", all.back());
    std::string words = all.size() == 1 ? ", weight " : ", weights ";
    for (size_t i = 0; i < all.size(); ++i) words += (i == 0 ? "" : " and ") + all[i];
    return words;
  }

  void draw_edge(const GraphEdge& edge, const GraphRound& round, Point from, Point to) {
    const bool both = std::ranges::binary_search(
        round, GraphEdge{edge.to, edge.from, edge.weight}, [](const auto& a, const auto& b) {
          return std::tuple(a.to, a.from, a.weight) < std::tuple(b.to, b.from, b.weight);
        });
    if (both && edge.from > edge.to) return;  // drawn with its other direction
    const double dx = to.x - from.x, dy = to.y - from.y, length = std::hypot(dx, dy);
    const double ux = dx / length, uy = dy / length;
    const Point end{to.x - ux * kDot, to.y - uy * kDot};
    std::string data = format("M%.1f %.1fL%.1f %.1f", from.x, from.y, end.x, end.y);
    if (!both) {
      constexpr double kHead = 6;
      for (const double side : {-0.5, 0.5}) {
        data += format("M%.1f %.1fL%.1f %.1f", end.x, end.y, end.x - kHead * (ux - side * uy),
                       end.y - kHead * (uy + side * ux));
      }
    }
    out_.path(data, both ? kBothWays : kOneWay);
  }

  Point place(Point centre, int learner) const {
    const double angle = 2 * std::numbers::pi * learner / graph_.num_learners;
    return {centre.x + radius_ * std::sin(angle), centre.y - radius_ * std::cos(angle)};
  }

  const LearnerGraph& graph_;
  double radius_;
  SvgFile out_;
};

}  // namespace

std::string draw_svg(const LearnerGraph& graph) {
  TRIREME_CHECK(graph.num_learners <= kMostDrawnLearners, graph.name, " has ", graph.num_learners,
                " learners; a drawing shows at most ", kMostDrawnLearners);
  return RoundPictures(graph).draw();
}

}  // namespace trireme::parallel
