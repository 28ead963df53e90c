// A full disk: takes all free space of a folder's file system. The file has no name, so that the
// kernel gives the space back whatever becomes of this process.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trireme/base/file/descriptor.h"

namespace trireme::launch::inline internal {

class DiskFill {
 public:
  // max_bytes: refuses to take more.
  // Throws: Error, one line
  DiskFill(const std::filesystem::path& folder, int64_t max_bytes);

  int64_t num_bytes() const { return num_bytes_; }

 private:
  Descriptor file_;
  int64_t num_bytes_ = 0;
};

}  // namespace trireme::launch::inline internal
