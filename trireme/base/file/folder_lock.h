// Allows one writer at a time in a folder, among all processes on all hosts that see it.
#pragma once

#include <chrono>
#include <filesystem>

#include "trireme/base/file/descriptor.h"

namespace trireme::inline internal {

// Not thread safe. The lock ends with the object or the process, even after `kill -9`. On a file
// system without locks it has no effect.
class FolderLock {
 public:
  // Waits up to `patience` for the holder to release it.
  // Throws: ConfigError when another FolderLock holds `folder` or when it cannot be opened
  explicit FolderLock(const std::filesystem::path& folder,
                      std::chrono::milliseconds patience = std::chrono::milliseconds(0));

  // Whether the path still leads to the locked folder. Costs one stat.
  bool is_in_place() const;
  // The current absolute path of that folder; empty when it was removed.
  std::filesystem::path place() const;

 private:
  std::filesystem::path path_;
  Descriptor folder_;
};

}  // namespace trireme::inline internal
