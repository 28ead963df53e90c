// A new file that is written from front to back while the caller goes on. Bypasses the page cache
// where the file system can, so that the bytes are on the disk at once and no other file's pages
// are pushed out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "trireme/base/file/file.h"
#include "trireme/base/io/async_io.h"

namespace trireme::checkpoint {

// Not thread safe. Without finish() the file is incomplete. Throws: Error with path and reason.
// Memory: two buffers
class DataFile {
 public:
  static constexpr size_t kBufferBytes = size_t{8} << 20;

  // Leaves `head_bytes` free at the beginning, a multiple of kIoAlignment. Reserves room for
  // `data_bytes` after them if they are known, so that a full disk is noticed now.
  // buffer_bytes: of each buffer, at most; a multiple of kIoAlignment
  DataFile(const std::filesystem::path& path, uint64_t head_bytes,
           std::optional<uint64_t> data_bytes, size_t buffer_bytes = kBufferBytes);

  // Returns where the bytes begin, counted from the end of the head. They may be changed
  // afterwards.
  uint64_t append(std::span<const std::byte> bytes);
  // Writes the head, which has head_bytes, and all that is left.
  void finish(std::string_view head, bool fsync);

  uint64_t num_bytes() const { return head_bytes_ + data_bytes_; }

 private:
  struct Buffer {
    AlignedBytes data{};
    size_t used = 0;
    std::optional<AsyncIo::Ticket> ticket{};
  };

  void start_write();
  void wait_for(Buffer& buffer);

  std::filesystem::path path_;
  Descriptor file_;
  const uint64_t head_bytes_;
  size_t capacity_ = 0;      // of each buffer
  uint64_t data_bytes_ = 0;  // appended so far
  uint64_t written_ = 0;     // of them, handed to the disk
  std::array<Buffer, 2> buffers_;
  size_t current_ = 0;
  std::unique_ptr<AsyncIo> io_;  // destroyed first: the kernel may still read the buffers
};

}  // namespace trireme::checkpoint
