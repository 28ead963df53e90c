#include "trireme/launch/journal/line_splitter.h"

#include <algorithm>
#include <utility>

#include "trireme/base/utf8.h"

namespace trireme::launch::inline internal {
namespace {

constexpr std::chrono::seconds kUpdateInterval(1);

}  // namespace

LineSplitter::LineSplitter(size_t max_line_bytes)
    : max_line_bytes_(std::max<size_t>(8, max_line_bytes)) {}

std::vector<std::string> LineSplitter::add(std::string_view piece, WallTime now) {
  std::vector<std::string> lines;
  while (!piece.empty()) {
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
      const size_t cut = utf8_prefix_bytes(held_, max_line_bytes_);
      lines.push_back(held_.substr(0, cut));
      held_.erase(0, cut);
      was_cut_ = true;
      continue;
    }
    if (taken < length || piece.empty()) continue;
    if (piece.front() == '\n') {
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

}  // namespace trireme::launch::inline internal
