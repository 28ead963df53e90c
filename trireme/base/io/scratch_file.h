// An unnamed file. Its space is allocated when it is made or grows, and freed when the process ends
// in any way.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "trireme/base/file/file.h"
#include "trireme/base/io/async_io.h"

namespace trireme {

// For errors, and how the file is read.
struct ScratchUse {
  std::string key = "offload.folder";  // the config's key for the folder
  std::string content = "this rank's optimizer states";
  bool direct = true;  // bypass the page cache if the file system can
};

class ScratchFile {
 public:
  // Makes the file in `folder`, which is made if missing. All zero.
  // Throws: ConfigError when the folder cannot be written or has less than `num_bytes` free
  ScratchFile(const std::filesystem::path& folder, uint64_t num_bytes, const ScratchUse& use = {});

  // Makes it `num_bytes` larger; what is new is zero. io() stays.
  // Throws: ConfigError when as much is not free; the file is as before
  void grow(uint64_t num_bytes);

  const IoFile& io() const { return io_; }

 private:
  std::filesystem::path folder_;
  ScratchUse use_;
  uint64_t num_bytes_ = 0;
  Descriptor file_;
  IoFile io_;
};

}  // namespace trireme
