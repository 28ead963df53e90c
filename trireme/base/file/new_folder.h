// A folder that appears complete or not at all. It is written under a temporary name beside its
// target and renamed when complete.
#pragma once

#include <filesystem>
#include <optional>

#include "trireme/base/file/folder_lock.h"

namespace trireme::inline internal {

// Not thread safe. Without commit() the destructor removes what was written. A killed process
// leaves ".<name>.tmp" beside `target`; the next NewFolder with that target removes it.
class NewFolder {
 public:
  // Throws: ConfigError when `target` exists and is not an empty folder, when the temporary folder
  //         cannot be written, or while another NewFolder of any process has the same target
  explicit NewFolder(const std::filesystem::path& target);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();

  // Where to write the content.
  const std::filesystem::path& path() const { return temporary_; }
  // Renames it to `target` and syncs both folders. The caller syncs the files in it.
  // Throws: ConfigError when something lies at `target` by now
  void commit();

 private:
  void make();
  void clear();

  std::filesystem::path target_;
  std::filesystem::path temporary_;
  std::optional<FolderLock> lock_;  // of temporary_
};

}  // namespace trireme::inline internal
