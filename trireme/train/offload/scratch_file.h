// A file of fixed size without a name: its space is taken when it is made and is free again when
// the process ends, however it ends.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trireme/base/file/descriptor.h"
#include "trireme/train/offload/async_io.h"

namespace trireme::train {

// What offsets, lengths and memory of requests to a direct file are multiples of.
constexpr size_t kIoAlignment = 4096;

class ScratchFile {
 public:
  // In `folder`, which is made when it is not there. All zero.
  // Throws: ConfigError when the folder cannot be written or has not `num_bytes` free
  ScratchFile(const std::filesystem::path& folder, uint64_t num_bytes);

  // Direct (past the page cache) where the file system can.
  const IoFile& io() const { return io_; }

 private:
  Descriptor file_;
  IoFile io_;
};

}  // namespace trireme::train
