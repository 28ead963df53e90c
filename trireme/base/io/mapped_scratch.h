// Memory in an unnamed file. The kernel writes it to the disk and reads it back as memory is short
// or free; hints tell it what is used next.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>

#include "trireme/base/io/scratch_file.h"

namespace trireme {

// Thread safe. A disk that fails when memory is used raises SIGBUS in the thread that uses it.
class MappedScratch {
 public:
  // Throws: ConfigError when the folder cannot be written
  MappedScratch(const std::filesystem::path& folder, ScratchUse use);

  // `num_bytes` zeros from a page's beginning, on the disk as long as the result lives.
  // Throws: ConfigError when the folder has no room for them, Error when they cannot be mapped
  std::shared_ptr<std::byte> take(size_t num_bytes);

  // Hints on bytes of one result of take(). They never change what the memory holds, and do nothing
  // for other memory.
  // Starts to read what is on the disk alone.
  void will_need(const void* begin, size_t num_bytes) const;
  // Starts to write what has changed. The process gives up the memory; the kernel may keep it as a
  // cache while nobody else needs it.
  void let_go(const void* begin, size_t num_bytes) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
