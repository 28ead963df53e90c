#include "trireme/base/svg.h"

#include <cmath>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// With a space before them, if there are any.
std::string more(std::string_view attributes) {
  return attributes.empty() ? std::string() : concat(' ', attributes);
}

}  // namespace

std::string escaped_markup(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    switch (c) {
      case '&': safe += "&amp;"; break;
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '"': safe += "&quot;"; break;
      default: safe += c;
    }
  }
  return safe;
}

double tick_step(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 10)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (span / (factor * power) <= 10) return factor * power;
  }
  return 10 * power;
}

void SvgFile::text(double x, double y, std::string_view words, std::string_view anchor,
                   std::string_view attributes) {
  out_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << '"'
       << more(attributes) << '>' << escaped_markup(words) << "</text>\n";
}

void SvgFile::box(double x, double y, double width, double height, std::string_view fill,
                  std::string_view title, std::string_view attributes) {
  out_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\"" << height
       << "\" fill=\"" << fill << '"' << more(attributes);
  if (title.empty()) {
    out_ << "/>\n";
  } else {
    out_ << "><title>" << escaped_markup(title) << "</title></rect>\n";
  }
}

void SvgFile::circle(double x, double y, double radius, std::string_view attributes) {
  out_ << "<circle cx=\"" << x << "\" cy=\"" << y << "\" r=\"" << radius << '"' << more(attributes)
       << "/>\n";
}

void SvgFile::line(double x1, double y1, double x2, double y2, std::string_view stroke) {
  out_ << "<line x1=\"" << x1 << "\" y1=\"" << y1 << "\" x2=\"" << x2 << "\" y2=\"" << y2
       << "\" stroke=\"" << stroke << "\"/>\n";
}

void SvgFile::path(std::string_view data, std::string_view stroke, std::string_view attributes) {
  out_ << "<path d=\"" << data << "\" fill=\"none\" stroke=\"" << stroke << '"' << more(attributes)
       << "/>\n";
}

std::string SvgFile::finish(double width, double height) const {
  return concat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", width, "\" height=\"", height,
                "\" viewBox=\"0 0 ", width, ' ', height,
                "\" font-family=\"sans-serif\" font-size=\"", kFontSize, "\" fill=\"#333\">\n",
                "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n", out_.str(), "</svg>\n");
}

}  // namespace trireme
