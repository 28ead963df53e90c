// What a TOML text must keep to before the parser sees it, whose recursion follows the text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::train {

inline constexpr size_t kMaxTomlBytes = size_t{1} << 20;
// Dots outside strings and comments: of numbers, and of keys, each of which is a table in a table.
inline constexpr size_t kMaxTomlDots = 4096;

// Arrays and inline tables inside one another are the parser's own check.
// Throws: ConfigError, one line, with the line of the text
void check_toml(std::string_view text, const std::string& source);

}  // namespace trireme::train
