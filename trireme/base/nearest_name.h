// The name that a user most likely meant.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace trireme::inline internal {

// Longer texts are not compared whole: the comparison is quadratic in their length.
inline constexpr size_t kMaxComparedBytes = 100;

// The name with the fewest insertions, deletions and replacements from `text`, the first of equals;
// "" when there are no names.
// Source: Levenshtein 1966, Soviet Physics Doklady 10(8)
std::string nearest_name(std::span<const std::string> names, std::string_view text);

}  // namespace trireme::inline internal
