#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/svg.h"

namespace trireme::parallel {
namespace {

constexpr double kRowHeight = 30;
constexpr double kRowGap = 6;
constexpr double kMargin = 16;
constexpr double kLabelWidth = 56;
constexpr double kFontSize = SvgFile::kFontSize;
constexpr const char* kFrame = R"(stroke="white" stroke-width="0.7")";
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
    if (!options_.title.empty()) {
      out_.text(kMargin, kMargin + kFontSize, options_.title, "start", R"(font-weight="bold")");
    }
    for (size_t rank = 0; rank < timeline_.ranks.size(); ++rank) row(rank);
    axis();
    legend();
    return out_.finish(options_.width, bottom_ + 5 * kFontSize + kMargin);
  }

 private:
  double x_of(double time) const { return kMargin + kLabelWidth + (time - origin_) * scale_; }

  void row(size_t rank) {
    const double y = top_ + static_cast<double>(rank) * (kRowHeight + kRowGap);
    out_.text(kMargin, y + kRowHeight / 2 + kFontSize / 3, concat("rank ", rank));
    out_.box(x_of(origin_), y, span_ * scale_, kRowHeight, "#eeeeee");
    for (const TimedAction& timed : timeline_.ranks[rank]) {
      const double width = (timed.end - timed.start) * scale_;
      const std::string number = std::to_string(timed.action.microbatch);
      out_.box(x_of(timed.start), y, width, kRowHeight,
               fill_of(timed.action.kind, schedule_.chunk_of(timed.action.stage), num_chunks_),
               concat(to_string(timed.action), ", ", timed.start - origin_, " to ",
                      timed.end - origin_, options_.unit.empty() ? "" : " ", options_.unit),
               kFrame);
      if (width >= kDigitWidth * static_cast<double>(number.size()) + 2) {
        out_.text(x_of(timed.start) + width / 2, y + kRowHeight / 2 + kFontSize / 3, number,
                  "middle");
      }
    }
  }

  void axis() {
    if (span_ <= 0) return;
    const double step = tick_step(span_);
    for (int i = 0; i * step <= span_ * (1 + 1e-9); ++i) {
      const double x = x_of(origin_ + i * step);
      out_.line(x, bottom_, x, bottom_ + 4, "#666666");
      out_.text(x, bottom_ + 4 + kFontSize, concat(i * step), "middle");
    }
    out_.text(kMargin, bottom_ + 4 + kFontSize, options_.unit.empty() ? "time" : options_.unit);
  }

  void legend() {
    constexpr std::array kKinds = {ActionKind::kForward, ActionKind::kBackward,
                                   ActionKind::kBackwardInput, ActionKind::kBackwardWeight};
    const std::array names = {"forward", "backward", "backward, input part",
                              "backward, weight part"};
    const double y = bottom_ + 2.6 * kFontSize;
    double x = kMargin + kLabelWidth;
    const auto entry = [&](const std::string& fill, const std::string& name) {
      out_.box(x, y, kFontSize, kFontSize, fill, name, kFrame);
      out_.text(x + 1.5 * kFontSize, y + 0.85 * kFontSize, name);
      x += 3 * kFontSize + kDigitWidth * static_cast<double>(name.size());
    };
    for (size_t i = 0; i < kKinds.size(); ++i) {
      if (occurs(kKinds[i])) entry(fill_of(kKinds[i], 0, 1), names[i]);
    }
    entry("#eeeeee", "idle");
    out_.text(x, y + 0.85 * kFontSize,
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
  SvgFile out_;
};

}  // namespace

std::string draw_svg(const Schedule& schedule, const Timeline& timeline,
                     const SvgDrawing& options) {
  return Picture(schedule, timeline, options).draw();
}

namespace {

struct Glyph {
  char letter;
  char fill;
  const char* color;
};

Glyph glyph_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward: return {'F', '-', "\033[30;46m"};
    case ActionKind::kBackward: return {'B', '=', "\033[30;42m"};
    case ActionKind::kBackwardInput: return {'I', '=', "\033[30;42m"};
    default: return {'W', '~', "\033[30;43m"};
  }
}

std::string label_of(const Schedule& schedule, const Action& action) {
  constexpr int kLetters = 26;
  std::string label = glyph_of(action.kind).letter + std::to_string(action.microbatch);
  if (schedule.num_stages() == schedule.num_ranks()) return label;
  const int chunk = schedule.chunk_of(action.stage);
  return label +
         (chunk < kLetters ? std::string(1, static_cast<char>('a' + chunk)) : concat("/", chunk));
}

// Columns per unit of time: enough for every label, unless one action is much shorter than the
// others.
double columns_per_time(const Schedule& schedule, const Timeline& timeline) {
  constexpr double kLongest = 24;
  double shortest = std::numeric_limits<double>::infinity();
  double longest = 0;
  size_t label = 1;
  for (const auto& actions : timeline.ranks) {
    for (const TimedAction& timed : actions) {
      const double duration = timed.end - timed.start;
      label = std::max(label, label_of(schedule, timed.action).size());
      longest = std::max(longest, duration);
      if (duration > 0) shortest = std::min(shortest, duration);
    }
  }
  if (longest == 0) return 1;
  return std::min(static_cast<double>(label + 1) / shortest,
                  std::max(kLongest, static_cast<double>(label + 1)) / longest);
}

struct Cell {
  char text = '.';              // idle
  const char* color = nullptr;  // null: idle
  bool is_first = false;        // of its action
  bool is_fill = false;
};
using Row = std::vector<Cell>;

Row row_of(const Schedule& schedule, const std::vector<TimedAction>& actions, double origin,
           double scale, size_t length) {
  Row row(length);
  for (const TimedAction& timed : actions) {
    const auto column = [&](double time) {
      return std::min(length, static_cast<size_t>(std::lround((time - origin) * scale)));
    };
    const Glyph glyph = glyph_of(timed.action.kind);
    const std::string label = label_of(schedule, timed.action);
    const size_t begin = column(timed.start);
    for (size_t i = begin; i < column(timed.end); ++i) {
      const bool is_fill = i - begin >= label.size();
      row[i] = {is_fill ? glyph.fill : label[i - begin], glyph.color, i == begin, is_fill};
    }
  }
  return row;
}

std::string text_of(std::span<const Cell> cells, bool color) {
  std::string text;
  const char* now = nullptr;
  for (const Cell& cell : cells) {
    if (color && (cell.color != now || cell.is_first))
      text += cell.color == nullptr ? "\033[0m" : cell.color;
    now = cell.color;
    text += color && cell.is_fill ? ' ' : cell.text;
  }
  return color && now != nullptr ? text + "\033[0m" : text;
}

}  // namespace

std::string draw_text(const Schedule& schedule, const Timeline& timeline,
                      const TextDrawing& options) {
  const double scale = columns_per_time(schedule, timeline);
  double origin = std::numeric_limits<double>::infinity();
  for (const auto& actions : timeline.ranks) {
    if (!actions.empty()) origin = std::min(origin, actions.front().start);
  }
  const auto length = static_cast<size_t>(std::lround(timeline.makespan() * scale));
  const auto name_of = [](size_t rank) { return concat("rank ", rank); };
  const size_t margin = name_of(timeline.ranks.size() - 1).size() + 2;
  TRIREME_CHECK(options.width > static_cast<int>(margin), "a drawing ", options.width,
                " columns wide; expected more than ", margin);
  // Bands of equal length, so that the last one is not just a few columns.
  const size_t most = static_cast<size_t>(options.width) - margin;
  const size_t num_bands = std::max<size_t>(1, (length + most - 1) / most);
  const size_t band = (length + num_bands - 1) / num_bands;
  std::vector<Row> rows;
  for (const auto& actions : timeline.ranks)
    rows.push_back(row_of(schedule, actions, origin, scale, length));
  std::string text;
  for (size_t begin = 0; begin < length; begin += band) {
    const size_t count = std::min(band, length - begin);
    if (begin > 0) text += '\n';
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      std::string name = name_of(rank);
      name.resize(margin, ' ');
      text += name;
      text += text_of(std::span(rows[rank]).subspan(begin, count), options.color) + '\n';
    }
  }
  return text;
}

}  // namespace trireme::parallel
