// Patterns of names, and lists of them, as config keys and options have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// Whether `name` matches as in a shell: * is any text, ? one character, [ab] one of these. The
// whole of `name` must match.
bool matches(const std::string& pattern, const std::string& name);

// Whether one of several patterns, separated by ',', matches `name`.
bool matches_any(const std::string& patterns, const std::string& name);

// Without the blanks around it: spaces, tabs and ends of lines.
std::string_view trimmed(std::string_view text);

// Splits "a, b" at ',' into {"a", "b"}. Drops surrounding blanks and empty parts.
std::vector<std::string> split_list(std::string_view text, char separator);

}  // namespace trireme
