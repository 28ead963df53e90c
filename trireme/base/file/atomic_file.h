// A file that appears under its name when it is complete, in place of the one that was there.
#pragma once

#include <filesystem>
#include <string_view>

#include "trireme/base/file/file.h"

namespace trireme::inline internal {

// Not thread safe. It is written to "<path>.tmp"; without commit() the destructor removes that.
class AtomicFile {
 public:
  // Throws: Error with path and reason; when a folder, a device or a pipe has that name
  explicit AtomicFile(const std::filesystem::path& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // Throws: Error when the disk is full
  void write(std::string_view bytes) { file_.write(bytes); }
  // Syncs and renames it: the file and its name are on the disk when the call returns.
  // Throws: Error with path and reason
  void commit();

 private:
  std::filesystem::path path_, temporary_;
  OutputFile file_;
  bool is_committed_ = false;
};

}  // namespace trireme::inline internal
