// Errors that refuse files of a checkpoint.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::checkpoint {

// Throws: CheckpointError that begins with the file's path
template <typename... Args>
[[noreturn]] void fail(const std::filesystem::path& path, const Args&... args) {
  throw CheckpointError(concat(path.string(), ": ", args...));
}

// Runs `action`. Its errors become CheckpointErrors.
template <typename Action>
auto as_checkpoint_error(Action action) {
  try {
    return action();
  } catch (const Error& error) {
    throw CheckpointError(error.what());
  }
}

// The file names that a checkpoint may list: those of files in its own folder, which no file system
// or shell interprets.

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

}  // namespace trireme::checkpoint
