// Lists of names in messages.
#pragma once

#include <set>
#include <string>
#include <string_view>

namespace trireme::inline internal {

// "; 7 missing: a, b, c, d, e, ...": how many items there are, and the first of them. "" for none.
inline std::string listed(std::string_view what, const std::set<std::string>& items) {
  constexpr size_t kMost = 5;
  if (items.empty()) return "";
  std::string text = "; " + std::to_string(items.size()) + " " + std::string(what) + ": ";
  size_t count = 0;
  for (const std::string& item : items) {
    if (count == kMost) return text + ", ...";
    text += (count++ == 0 ? "" : ", ") + item;
  }
  return text;
}

}  // namespace trireme::inline internal
