#include "trireme/launch/journal/log_splitter.h"

#include <algorithm>
#include <utility>

#include "trireme/base/locale/text.h"

namespace trireme::launch {
namespace {

// Progress bars redraw many times a second and would fill the log.
constexpr std::chrono::seconds kUpdateInterval(1);

}  // namespace

LineSplitter::LineSplitter(size_t max_line_bytes)
    : max_line_bytes_(std::max<size_t>(8, max_line_bytes)) {}

std::vector<std::string> LineSplitter::add(std::string_view piece, WallTime now) {
  std::vector<std::string> lines;
  while (!piece.empty()) {
    // Remembered across pieces: the newline behind a return may come with the next one.
    if (ended_in_return_) {
      ended_in_return_ = false;
      if (piece.front() == '\r') {
        ended_in_return_ = true;
        piece.remove_prefix(1);
        continue;
      }
      if (piece.front() != '\n') {  // the line is written again
        if (!held_.empty() && now - last_update_ >= kUpdateInterval) {
          lines.push_back(held_);
          last_update_ = now;
        }
        held_.clear();
        was_cut_ = false;
      }
    }
    const size_t length = std::min(piece.find_first_of("\r\n"), piece.size());
    const size_t taken = std::min(length, max_line_bytes_ + 1 - held_.size());
    held_ += piece.substr(0, taken);
    piece.remove_prefix(taken);
    if (held_.size() > max_line_bytes_) {
      // Not within a character, or both parts would be no UTF-8.
      const size_t cut = utf8_prefix_bytes(held_, max_line_bytes_);
      lines.push_back(held_.substr(0, cut));
      held_.erase(0, cut);
      was_cut_ = true;
      continue;
    }
    if (taken < length || piece.empty()) continue;
    if (piece.front() == '\n') {
      // A line that was cut exactly at its end leaves nothing, and must not make an empty line.
      if (!held_.empty() || !was_cut_) lines.push_back(std::exchange(held_, {}));
      was_cut_ = false;
    } else {
      ended_in_return_ = true;
    }
    piece.remove_prefix(1);
  }
  return lines;
}

std::vector<std::string> LineSplitter::finish() {
  std::vector<std::string> lines;
  if (!held_.empty()) lines.push_back(std::exchange(held_, {}));
  ended_in_return_ = was_cut_ = false;
  return lines;
}

LogSplitter::LogSplitter(size_t max_line_bytes)
    : splitters_{LineSplitter(max_line_bytes), LineSplitter(max_line_bytes),
                 LineSplitter(max_line_bytes)} {}

std::vector<LogLine> LogSplitter::add(LogStream stream, int64_t epoch, int64_t step,
                                      std::string_view text, WallTime now) {
  std::vector<LogLine> lines;
  for (std::string& line : splitters_[static_cast<size_t>(stream)].add(text, now)) {
    lines.push_back({now, epoch, step, stream, std::move(line)});
  }
  return lines;
}

std::vector<LogLine> LogSplitter::finish(int64_t epoch, int64_t step, WallTime now) {
  std::vector<LogLine> lines;
  for (const auto& [name, stream] : kLogStreams) {
    for (std::string& line : splitters_[static_cast<size_t>(stream)].finish()) {
      lines.push_back({now, epoch, step, stream, std::move(line)});
    }
  }
  return lines;
}

}  // namespace trireme::launch
