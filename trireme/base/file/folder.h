// Folders that several processes see: locked by one writer at a time, prepared beside their place,
// and put there complete.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "trireme/base/file/file.h"

namespace trireme {

// Allows one writer at a time in a folder, or several that know of each other, among all processes
// on all hosts that see it.
// Not thread safe. The lock ends with the object or the process, even after `kill -9`. On a file
// system without locks it has no effect.
class FolderLock {
 public:
  enum class Kind { kAlone, kShared };  // kShared: beside others that are kShared

  // Waits up to `patience` for the holder to release it.
  // Throws: ConfigError when another FolderLock holds `folder` or when it cannot be opened
  explicit FolderLock(const std::filesystem::path& folder,
                      std::chrono::milliseconds patience = std::chrono::milliseconds(0),
                      Kind kind = Kind::kAlone);

  // Whether the path still leads to the locked folder. Costs one stat.
  bool is_in_place() const;
  // The current absolute path of that folder; empty when it was removed.
  std::filesystem::path place() const;

 private:
  std::filesystem::path path_;
  Descriptor folder_;
};

// A folder in which one process at a time prepares the contents of a place. It is beside that
// place, locked against all processes on all hosts that see it.
// Not thread safe. The destructor removes it with its content, unless release() was called. A
// killed process leaves ".<name>.tmp" beside `target`; the next WorkFolder for that target removes
// what is in it, unless it is to go on with it.
class WorkFolder {
 public:
  // What a killed process left in it.
  enum class Left { kRemoved, kKept };

  // target: an absolute path or one relative to the working folder. It need not exist.
  // Throws: ConfigError when the folder cannot be made or written, when a link has its name, or
  //         while another WorkFolder of any process has the same target
  explicit WorkFolder(const std::filesystem::path& target, Left left = Left::kRemoved);
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  ~WorkFolder();

  const std::filesystem::path& path() const { return path_; }
  // The caller has renamed it, or leaves it to the next.
  void release() { path_.clear(); }

 private:
  void lock();
  void clear();

  std::filesystem::path path_;
  std::optional<FolderLock> lock_;
};

// A folder that appears complete or not at all. It is written under a temporary name beside its
// target and renamed when complete.
// Not thread safe. Without commit() the destructor removes what was written. A killed process
// leaves ".<name>.tmp" beside `target`; the next NewFolder with that target removes it, unless it
// is to go on with it.
class NewFolder {
 public:
  // Throws: ConfigError when `target` exists and is not an empty folder, when the temporary folder
  //         cannot be written, or while another NewFolder of any process has the same target
  explicit NewFolder(const std::filesystem::path& target,
                     WorkFolder::Left left = WorkFolder::Left::kRemoved);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  // Where to write the content.
  const std::filesystem::path& path() const { return work_.path(); }
  // Renames it to `target` and syncs both folders. The caller syncs the files in it.
  // Throws: ConfigError when something lies at `target` by now
  void commit();
  // Leaves what was written to the next, which asks for Left::kKept.
  void release() { work_.release(); }

 private:
  std::filesystem::path target_;
  WorkFolder work_;
};

}  // namespace trireme
