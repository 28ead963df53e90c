// How far a file has been read that another process appends to, and whether an open file is still
// that one: it may be cut, replaced, or renamed between two looks, and the number of an inode is
// given to the next file at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trireme/base/file/file.h"

namespace trireme::launch {

// Not thread safe. Holds no file open, and of the file 512 bytes.
class FilePlace {
 public:
  // Whether something has been read.
  bool is_set() const { return file_.has_value(); }
  uint64_t offset() const { return offset_; }

  // Whether the open file is the one that was read, with the same first bytes and the same bytes
  // before the place. A line has its time or its step, so a file that was written anew differs.
  bool is_in(int fd) const;
  // Whether the file at `path` ends here, as far as one stat tells.
  bool is_at_end_of(const std::filesystem::path& path) const;

  // The bytes behind the place, at most `num_bytes`, and goes behind them. The first call decides
  // which file it is.
  std::string read(int fd, size_t num_bytes);

 private:
  std::optional<FileIdentity> file_{};
  uint64_t offset_ = 0;
  std::string head_{};    // the file's first bytes
  std::string before_{};  // the last ones before the place
};

}  // namespace trireme::launch
