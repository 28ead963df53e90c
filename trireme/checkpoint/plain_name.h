// The file names that a checkpoint may list: those of files in its own folder, which no file system
// or shell interprets.
#pragma once

#include <algorithm>
#include <string_view>

namespace trireme::checkpoint::inline internal {

// For messages.
inline constexpr const char* kPlainName = "letters, digits, '.', '_' and '-', no '.' in front";

inline bool is_plain_name(std::string_view name) {
  constexpr size_t kMaxBytes = 255;
  return !name.empty() && name.size() <= kMaxBytes && name.front() != '.' &&
         std::ranges::all_of(name, [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

}  // namespace trireme::checkpoint::inline internal
