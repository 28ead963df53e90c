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

}  // namespace trireme::checkpoint::inline internal
