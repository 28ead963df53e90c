// One writer at a time for a folder, among all processes of the hosts that see it.
#pragma once

#include <chrono>
#include <filesystem>

#include "trireme/base/file/descriptor.h"

namespace trireme {

// Not thread safe. Ends with the object and with the process, `kill -9` included. A file system
// without locks goes without.
class FolderLock {
 public:
  // patience: how long to wait for a lock that another holder is about to release.
  // Throws: ConfigError when another FolderLock of `folder` lives, or when it cannot be opened
  explicit FolderLock(const std::filesystem::path& folder,
                      std::chrono::milliseconds patience = std::chrono::milliseconds(0));

  // Whether the path still names the folder that is locked. Costs one stat.
  bool is_in_place() const;
  // Where that folder is by now, absolute; empty when it has been removed.
  std::filesystem::path place() const;

 private:
  std::filesystem::path path_;
  Descriptor folder_;
};

}  // namespace trireme
