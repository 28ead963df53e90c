// Writes drawings as SVG files.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/locale/text.h"

namespace trireme {

// Text from outside, made safe as content or attribute of an SVG or HTML file.
std::string escaped_markup(std::string_view text);

// The distance between an axis's ticks: 1, 2 or 5 times a power of ten, of which at most ten fit
// into `span`, which is above 0.
double tick_step(double span);

// Coordinates and lengths are in pixels, x to the right and y downwards. Not thread safe.
class SvgFile {
 public:
  static constexpr double kFontSize = 12;

  // anchor:     "start", "middle" or "end", the part of the words that is at x
  // attributes: more of them, such as R"(fill="#888")"
  void text(double x, double y, std::string_view words, std::string_view anchor = "start",
            std::string_view attributes = "");
  // title: what is shown on hovering; "": nothing
  void box(double x, double y, double width, double height, std::string_view fill,
           std::string_view title = "", std::string_view attributes = "");
  void circle(double x, double y, double radius, std::string_view attributes);
  void line(double x1, double y1, double x2, double y2, std::string_view stroke);
  // data: as in the attribute d, such as "M80 40V350H700"
  void path(std::string_view data, std::string_view stroke, std::string_view attributes = "");

  // The whole file, on a white ground.
  std::string finish(double width, double height) const;

 private:
  TextWriter out_;
};

}  // namespace trireme
