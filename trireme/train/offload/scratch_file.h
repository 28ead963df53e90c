// An unnamed file of fixed size. Its space is allocated when it is made, and freed when the process
// ends in any way.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trireme/base/file/descriptor.h"
#include "trireme/base/io/async_io.h"

namespace trireme::train::inline internal {

class ScratchFile {
 public:
  // Makes the file in `folder`, which is made if missing. All zero.
  // Throws: ConfigError when the folder cannot be written or has less than `num_bytes` free
  ScratchFile(const std::filesystem::path& folder, uint64_t num_bytes);

  // Direct (bypassing the page cache) if the file system supports it.
  const IoFile& io() const { return io_; }

 private:
  Descriptor file_;
  IoFile io_;
};

}  // namespace trireme::train::inline internal
