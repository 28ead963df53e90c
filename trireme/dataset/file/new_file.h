// A file that appears when it is complete. It is written under a temporary name beside its own.
#pragma once

#include <filesystem>
#include <string_view>

#include "trireme/base/file/atomic_file.h"

namespace trireme::dataset {

// Not thread safe. Without commit() the destructor removes what was written.
class NewFile {
 public:
  // Makes missing folders.
  // Throws: ConfigError when the file cannot be written, or `path` is a folder, a device or a pipe
  explicit NewFile(const std::filesystem::path& path);

  // Throws: Error when the disk is full
  void write(std::string_view bytes) { file_.write(bytes); }
  // Renames the file to its own name. It is on the disk when the call returns.
  void commit() { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace trireme::dataset
