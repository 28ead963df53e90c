// A file of records of one size (docs/recommend-data.md). Does not know what is in them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"

namespace trireme::dataset::inline internal {

// Thread safe.
class RecordFile {
 public:
  // Throws: ConfigError with the path when there is no such file, or it is empty or not a whole
  //         number of records
  RecordFile(const std::filesystem::path& path, size_t record_bytes);

  std::string name() const { return file_.path().string(); }
  int64_t size() const { return size_; }  // in records
  size_t record_bytes() const { return record_bytes_; }
  // Throws: ConfigError unless there are `expected` records. what: "samples"
  void check_size(int64_t expected, const char* what) const;

  // Throws: ConfigError when the file has become shorter
  void read(int64_t index, std::span<std::byte> record) const;

 private:
  InputFile file_;
  size_t record_bytes_;
  int64_t size_;
};

// The bytes of one record, on the stack unless there are many.
class RecordBytes {
 public:
  explicit RecordBytes(size_t size) : size_(size), large_(size > small_.size() ? size : 0) {}
  std::span<std::byte> bytes() { return {large_.empty() ? small_.data() : large_.data(), size_}; }

 private:
  size_t size_;
  std::array<std::byte, 1024> small_;
  std::vector<std::byte> large_;
};

}  // namespace trireme::dataset::inline internal
