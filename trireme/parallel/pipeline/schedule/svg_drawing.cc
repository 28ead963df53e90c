// draw_svg(): a timeline as a picture.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"

namespace trireme::parallel {
namespace {

constexpr double kRowHeight = 30;
constexpr double kRowGap = 6;
constexpr double kMargin = 16;
constexpr double kLabelWidth = 56;
constexpr double kFontSize = 12;
constexpr double kDigitWidth = 7;

struct Rgb {
  int red, green, blue;
};

// Blue, green and orange that colour-blind people can tell apart.
// Source: Okabe and Ito 2008, Color Universal Design
Rgb color_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return {86, 180, 233};
    case ActionKind::kBackwardWeight: return {230, 159, 0};
    default: return {60, 180, 140};
  }
}

// Stages later in the model are lighter.
std::string fill_of(ActionKind kind, int chunk, int num_chunks) {
  const Rgb color = color_of(kind);
  const double white = num_chunks > 1 ? 0.6 * chunk / (num_chunks - 1) : 0;
  const auto mix = [&](int part) { return static_cast<int>(part + (255 - part) * white); };
  return concat("rgb(", mix(color.red), ",", mix(color.green), ",", mix(color.blue), ")");
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else
      result += c;
  }
  return result;
}

// 1, 2 or 5 times a power of ten, so that about ten at most fit into `span`.
double tick_step(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 10)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (span / (factor * power) <= 10) return factor * power;
  }
  return 10 * power;
}

class Picture {
 public:
  Picture(const Schedule& schedule, const Timeline& timeline, const SvgDrawing& options)
      : schedule_(schedule), timeline_(timeline), options_(options) {
    origin_ = std::numeric_limits<double>::infinity();
    for (const auto& actions : timeline.ranks) {
      if (!actions.empty()) origin_ = std::min(origin_, actions.front().start);
    }
    for (int stage = 0; stage < schedule.num_stages(); ++stage)
      num_chunks_ = std::max(num_chunks_, schedule.chunk_of(stage) + 1);
    span_ = timeline.makespan();
    scale_ = (options.width - 2 * kMargin - kLabelWidth) / (span_ > 0 ? span_ : 1);
    top_ = options.title.empty() ? kMargin : kMargin + 2 * kFontSize;
    bottom_ = top_ + static_cast<double>(timeline.ranks.size()) * (kRowHeight + kRowGap);
  }

  std::string draw() {
    const double height = bottom_ + 5 * kFontSize + kMargin;
    out_ << "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" << options_.width << "\" height=\""
         << height << "\" viewBox=\"0 0 " << options_.width << ' ' << height
         << "\" font-family=\"sans-serif\" font-size=\"" << kFontSize << "\">\n"
         << "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
    if (!options_.title.empty()) text(kMargin, kMargin + kFontSize, "start", options_.title, true);
    for (size_t rank = 0; rank < timeline_.ranks.size(); ++rank) row(rank);
    axis();
    legend();
    out_ << "</svg>\n";
    return out_.str();
  }

 private:
  double x_of(double time) const { return kMargin + kLabelWidth + (time - origin_) * scale_; }

  void text(double x, double y, const char* anchor, const std::string& words, bool bold = false) {
    out_ << "<text x=\"" << x << "\" y=\"" << y << "\" text-anchor=\"" << anchor << '"'
         << (bold ? " font-weight=\"bold\"" : "") << '>' << escaped(words) << "</text>\n";
  }

  void box(double x, double y, double width, double height, const std::string& fill,
           const std::string& title) {
    out_ << "<rect x=\"" << x << "\" y=\"" << y << "\" width=\"" << width << "\" height=\""
         << height << "\" fill=\"" << fill << "\" stroke=\"white\" stroke-width=\"0.7\"><title>"
         << escaped(title) << "</title></rect>\n";
  }

  void row(size_t rank) {
    const double y = top_ + static_cast<double>(rank) * (kRowHeight + kRowGap);
    text(kMargin, y + kRowHeight / 2 + kFontSize / 3, "start", concat("rank ", rank));
    out_ << "<rect x=\"" << x_of(origin_) << "\" y=\"" << y << "\" width=\"" << span_ * scale_
         << "\" height=\"" << kRowHeight << "\" fill=\"#eeeeee\"/>\n";
    for (const TimedAction& timed : timeline_.ranks[rank]) {
      const double width = (timed.end - timed.start) * scale_;
      const std::string number = std::to_string(timed.action.microbatch);
      box(x_of(timed.start), y, width, kRowHeight,
          fill_of(timed.action.kind, schedule_.chunk_of(timed.action.stage), num_chunks_),
          concat(to_string(timed.action), ", ", timed.start - origin_, " to ", timed.end - origin_,
                 options_.unit.empty() ? "" : " ", options_.unit));
      if (width >= kDigitWidth * static_cast<double>(number.size()) + 2)
        text(x_of(timed.start) + width / 2, y + kRowHeight / 2 + kFontSize / 3, "middle", number);
    }
  }

  void axis() {
    if (span_ <= 0) return;
    const double step = tick_step(span_);
    for (int i = 0; i * step <= span_ * (1 + 1e-9); ++i) {
      const double x = x_of(origin_ + i * step);
      out_ << "<line x1=\"" << x << "\" y1=\"" << bottom_ << "\" x2=\"" << x << "\" y2=\""
           << bottom_ + 4 << "\" stroke=\"#666666\"/>\n";
      text(x, bottom_ + 4 + kFontSize, "middle", concat(i * step));
    }
    text(kMargin, bottom_ + 4 + kFontSize, "start", options_.unit.empty() ? "time" : options_.unit);
  }

  void legend() {
    constexpr std::array kKinds = {ActionKind::kForward, ActionKind::kBackward,
                                   ActionKind::kBackwardInput, ActionKind::kBackwardWeight};
    const std::array names = {"forward", "backward", "backward, input part",
                              "backward, weight part"};
    const double y = bottom_ + 2.6 * kFontSize;
    double x = kMargin + kLabelWidth;
    const auto entry = [&](const std::string& fill, const std::string& name) {
      box(x, y, kFontSize, kFontSize, fill, name);
      text(x + 1.5 * kFontSize, y + 0.85 * kFontSize, "start", name);
      x += 3 * kFontSize + kDigitWidth * static_cast<double>(name.size());
    };
    for (size_t i = 0; i < kKinds.size(); ++i) {
      if (occurs(kKinds[i])) entry(fill_of(kKinds[i], 0, 1), names[i]);
    }
    entry("#eeeeee", "idle");
    text(x, y + 0.85 * kFontSize, "start",
         num_chunks_ > 1 ? "numbers: microbatches; lighter: a rank's later stages"
                         : "numbers: microbatches");
  }

  bool occurs(ActionKind kind) const {
    return std::ranges::any_of(timeline_.ranks, [kind](const auto& actions) {
      return std::ranges::any_of(
          actions, [kind](const TimedAction& timed) { return timed.action.kind == kind; });
    });
  }

  const Schedule& schedule_;
  const Timeline& timeline_;
  const SvgDrawing& options_;
  double origin_ = 0, span_ = 0, scale_ = 1, top_ = 0, bottom_ = 0;
  int num_chunks_ = 1;
  std::ostringstream out_;
};

}  // namespace

std::string draw_svg(const Schedule& schedule, const Timeline& timeline,
                     const SvgDrawing& options) {
  return Picture(schedule, timeline, options).draw();
}

}  // namespace trireme::parallel
