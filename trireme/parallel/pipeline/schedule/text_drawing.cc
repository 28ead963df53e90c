// draw_text(): a timeline in characters.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"

namespace trireme::parallel {
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
