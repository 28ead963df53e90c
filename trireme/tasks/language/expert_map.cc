#include "trireme/tasks/language/expert_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iomanip>
#include <sstream>

#include "trireme/base/error.h"

namespace trireme::tasks::inline internal {
namespace {

constexpr double kMargin = 16, kLabelWidth = 64, kTitleHeight = 28, kAxisHeight = 36;
constexpr double kRowHeight = 22, kLegendHeight = 44, kMapWidth = 640, kMinimumWidth = 3;
constexpr double kLargestColumn = 48;
constexpr double kExtreme = 4;  // that many times an even share, or a part of it, has full colour

// Orange and blue that colour-blind people can tell apart.
// Source: Okabe and Ito 2008, Color Universal Design
std::string color_of(double load) {
  using Rgb = std::array<double, 3>;
  constexpr Rgb kLess{230, 159, 0}, kMore{0, 114, 178};
  const double way = std::clamp(std::log2(std::max(load, 1e-9)) / std::log2(kExtreme), -1.0, 1.0);
  const Rgb& end = way < 0 ? kLess : kMore;
  std::array<int, 3> rgb{};
  for (size_t i = 0; i < 3; ++i) {
    rgb[i] = static_cast<int>(std::lround(255 + (end[i] - 255) * std::abs(way)));
  }
  return concat("rgb(", rgb[0], ",", rgb[1], ",", rgb[2], ")");
}

// How many columns lie between two labels, so that these do not touch.
int64_t label_step(double column_width) {
  constexpr double kLabel = 28;
  int64_t step = 1;
  for (int64_t factor = 1; static_cast<double>(step) * column_width < kLabel; ++factor) {
    step = factor * 5;
  }
  return step;
}

class Drawing {
 public:
  void text(double x, double y, const std::string& words, const char* anchor = "start") {
    out_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << "\">" << words
         << "</text>\n";
  }
  void cell(double x, double y, double width, double height, double load,
            const std::string& words) {
    out_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\""
         << height << "\" fill=\"" << color_of(load) << "\"";
    if (words.empty()) {
      out_ << "/>\n";
    } else {
      out_ << "><title>" << words << "</title></rect>\n";
    }
  }
  std::string finish(double width, double height) const {
    return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"",
                  height, "\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#333\">\n",
                  "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", out_.str(),
                  "</svg>\n");
  }

 private:
  std::ostringstream out_;
};

void draw_legend(Drawing& drawing, double x, double y) {
  constexpr int kSteps = 32;
  constexpr double kStep = 6;
  for (int i = 0; i <= kSteps; ++i) {
    const double load = std::pow(kExtreme, 2.0 * i / kSteps - 1);
    drawing.cell(x + kStep * i, y, kStep, 12, load, "");
  }
  drawing.text(x, y + 26, "1/4");
  drawing.text(x + kStep * (kSteps + 1) / 2, y + 26, "even share", "middle");
  drawing.text(x + kStep * (kSteps + 1), y + 26, "4 x", "end");
}

}  // namespace

std::string draw_experts(const std::vector<ExpertLoad>& blocks, const std::string& title) {
  TRIREME_ASSERT(!blocks.empty() && !blocks.front().of_experts.empty(), "a map of no experts");
  const auto E = std::ssize(blocks.front().of_experts);
  const double column =
      std::clamp(kMapWidth / static_cast<double>(E), kMinimumWidth, kLargestColumn);
  const double left = kMargin + kLabelWidth, top = kMargin + kTitleHeight;
  Drawing drawing;
  drawing.text(kMargin, kMargin + 14, title);
  double y = top;
  for (const ExpertLoad& block : blocks) {
    drawing.text(left - 8, y + kRowHeight - 7, concat("layer ", block.layer), "end");
    for (int64_t e = 0; e < E; ++e) {
      const double load = block.of_experts[static_cast<size_t>(e)];
      std::ostringstream words;
      words << "layer " << block.layer << ", expert " << e << ": " << std::setprecision(3) << load
            << " of an even share";
      drawing.cell(left + column * static_cast<double>(e), y, column, kRowHeight, load,
                   words.str());
    }
    y += kRowHeight;
  }
  for (int64_t e = 0; e < E; e += label_step(column)) {
    drawing.text(left + column * (static_cast<double>(e) + 0.5), y + 16, std::to_string(e),
                 "middle");
  }
  drawing.text(left - 8, y + 16, "expert", "end");
  draw_legend(drawing, left, y + kAxisHeight);
  const double width = std::max(left + column * static_cast<double>(E), left + 360) + kMargin;
  return drawing.finish(width, y + kAxisHeight + kLegendHeight);
}

}  // namespace trireme::tasks::inline internal
