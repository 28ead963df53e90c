// Text of a stranger in a message: short, and nothing that a terminal obeys.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace trireme {

// The first 60 bytes of `text`, "..." where there is more; "?" for control characters.
inline std::string shown(std::string_view text) {
  constexpr size_t kMaxBytes = 60;
  std::string cut(text.substr(0, kMaxBytes));
  std::ranges::replace_if(
      cut, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > kMaxBytes ? cut + "..." : cut;
}

}  // namespace trireme
