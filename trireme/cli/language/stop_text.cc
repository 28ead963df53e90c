#include "trireme/cli/language/stop_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace trireme::cli {

std::string StopText::add(std::string_view piece) {
  if (has_ended_) return "";
  held_ += piece;
  // The string that is complete first ends the text, however the text is cut into pieces; of
  // several that end there, the one that begins first.
  size_t first = held_.npos;
  size_t end = held_.npos;
  for (const std::string& stop : stops_) {
    const size_t at = held_.find(stop);
    if (at == held_.npos) continue;
    if (at + stop.size() < end || (at + stop.size() == end && at < first)) {
      first = at;
      end = at + stop.size();
    }
  }
  if (first != held_.npos) {
    has_ended_ = true;
    held_.resize(first);
    return std::exchange(held_, "");
  }
  size_t kept = 0;
  for (const std::string& stop : stops_) {
    size_t length = std::min(stop.size() - 1, held_.size());
    while (length > kept && !held_.ends_with(std::string_view(stop).substr(0, length))) --length;
    kept = std::max(kept, length);
  }
  std::string sure = held_.substr(0, held_.size() - kept);
  held_.erase(0, sure.size());
  return sure;
}

std::string StopText::finish() { return std::exchange(held_, ""); }

}  // namespace trireme::cli
