// A folder that appears whole or not at all: written under another name beside its place, and
// renamed when it is complete.
#pragma once

#include <filesystem>
#include <optional>

#include "trireme/base/file/folder_lock.h"

namespace trireme {

// Not thread safe. An object that is gone without commit() has removed what it wrote; a kill leaves
// ".<name>.tmp" beside `target`, which the next one for the same target removes.
class NewFolder {
 public:
  // Throws: ConfigError when `target` is neither new nor an empty folder, when its place cannot be
  //         written, or while another NewFolder for it lives, in any process
  explicit NewFolder(const std::filesystem::path& target);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  // Where to write what shall be in it.
  const std::filesystem::path& path() const { return temporary_; }
  // Renames it to `target`; both are on the disk afterwards. The files in it are the caller's to
  // sync.
  // Throws: ConfigError when something lies at `target` by now
  void commit();

 private:
  void make();
  void clear();

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  std::optional<FolderLock> lock_;  // of temporary_
};

}  // namespace trireme
