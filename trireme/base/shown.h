// Text of a stranger in a message: short, and nothing that a terminal obeys.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace trireme {

// The first `max_bytes` of `text`, "..." where there is more; "?" for control characters.
inline std::string shown(std::string_view text, size_t max_bytes = 60) {
  std::string cut(text.substr(0, max_bytes));
  std::ranges::replace_if(
      cut, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > max_bytes ? cut + "..." : cut;
}

}  // namespace trireme
