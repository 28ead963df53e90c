// What a user asks of the logs, from the words of a command line.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::launch::inline internal {

// "3", "3,5-7" as LogFilter::ranks.
// Throws: ConfigError; `what` names the option
std::vector<std::pair<int, int>> parse_ranks(std::string_view text, std::string_view what);

inline constexpr size_t kMaxPatternBytes = 1024;

// A function that finds an extended regular expression (POSIX, as `grep -E`) in a text. It has no
// back-references, and bounded repetitions, so that no text takes long or much memory.
// Throws: ConfigError for a bad pattern; `what` names the option
std::function<bool(std::string_view)> parse_pattern(const std::string& pattern,
                                                    std::string_view what);

}  // namespace trireme::launch::inline internal
