// Reads a file that another process appends to, line by line, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/file/file_identity.h"

namespace trireme::launch::inline internal {

// Not thread safe. Holds no file open between reads, so that thousands can be read side by side.
// Follows the file when it is rotated (AppendFile::rotate()): reads PATH.1 first, to its end, then
// PATH.
class LineReader {
 public:
  struct Options {
    size_t buffer_bytes = size_t{64} << 10;
    size_t max_line_bytes = size_t{16} << 10;  // longer lines come in pieces
    bool with_older = true;                    // begin with PATH.1
  };
  explicit LineReader(std::filesystem::path path) : LineReader(std::move(path), Options{}) {}
  LineReader(std::filesystem::path path, const Options& options);

  // The next line without its newline; empty at the end of what is there now. A last line without a
  // newline is returned only if `is_final`.
  std::optional<std::string> next(bool is_final = false);

  uint64_t num_bytes_read() const { return num_bytes_read_; }

 private:
  enum class Place { kCurrent, kOlder, kGone };

  bool refill();
  bool has_nothing_new() const;
  bool read_from(const std::filesystem::path& path);
  Place place_of_file() const;

  std::filesystem::path path_;
  Options options_;
  std::string buffer_;
  size_t begin_ = 0;                    // of the unread part of buffer_
  std::optional<FileIdentity> file_{};  // the one that is being read
  std::string head_;                    // its first bytes: inodes are used again
  uint64_t offset_ = 0;                 // within it
  bool has_passed_older_ = false;       // PATH.1 was read to its end
  uint64_t num_bytes_read_ = 0;
};

}  // namespace trireme::launch::inline internal
