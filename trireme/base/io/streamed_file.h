// Writes a large file from front to back while the caller goes on. Bypasses the page cache where
// the file system can: nothing is copied into it, a sync has little left to wait for, and no other
// file's pages are pushed out. Small files pass through the cache like any others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "trireme/base/file/file.h"
#include "trireme/base/io/async_io.h"

namespace trireme {

// Not thread safe. Without flush() the last bytes are not in the file. The destructor waits for the
// writes under way. Failures throw Error with path and reason; those of a write may come with a
// later call.
class StreamedFile {
 public:
  // The most that is written at once. Two buffers of this size take turns.
  static constexpr size_t kBufferBytes = size_t{4} << 20;

  // Writes behind the first `num_bytes` of the file, which exists and has no more.
  explicit StreamedFile(std::filesystem::path path, uint64_t num_bytes = 0);

  // Where the next bytes go; never empty, and valid until the next call. A file of values of 1, 2,
  // 4 or 8 bytes finds room for whole ones.
  std::span<std::byte> room() {
    return {buffers_[current_].data.get() + used_, kBufferBytes - used_};
  }
  // The first `num_bytes` of the room have been filled.
  void advance(size_t num_bytes);

  // All bytes are in the file, for other readers of it too.
  void flush();
  // They are on the disk.
  void sync();

 private:
  struct Buffer {
    AlignedBytes data{};
    uint64_t offset = 0;  // in the file, of the write under way
    std::optional<AsyncIo::Ticket> ticket{};
  };

  void start_write();
  void wait_for(Buffer& buffer);
  void write_through_cache(std::span<const std::byte> bytes, uint64_t offset) const;

  std::filesystem::path path_;
  Descriptor cached_, streamed_;  // the same file; streamed_ belongs to io_
  uint64_t offset_ = 0;           // in the file, of the current buffer: a multiple of kIoAlignment
  size_t used_ = 0;               // bytes of the current buffer
  std::array<Buffer, 2> buffers_;
  size_t current_ = 0;
  std::unique_ptr<AsyncIo> io_{};  // null until a buffer is full. Destroyed first: it uses the rest
};

}  // namespace trireme
