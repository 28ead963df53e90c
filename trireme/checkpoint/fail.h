// How the files of a checkpoint are refused.
#pragma once

#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::checkpoint::inline internal {

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

}  // namespace trireme::checkpoint::inline internal
