// Limits on a TOML text, checked before the parser sees it, because the parser recurses with the
// text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme {

inline constexpr size_t kMaxTomlBytes = size_t{1} << 20;
// Dots outside strings and comments, in numbers and in keys. Each dot of a key nests a table.
inline constexpr size_t kMaxTomlDots = 4096;

// The parser itself limits nested arrays and inline tables.
// Throws: ConfigError, one line, with the line of the text
void check_toml(std::string_view text, const std::string& source);

}  // namespace trireme
