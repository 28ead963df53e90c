// Writes a file of records of one size (docs/recommend-data.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "trireme/base/file/file.h"

namespace trireme::dataset::inline internal {

class RecordWriter {
 public:
  // Throws: Error when the file cannot be created
  RecordWriter(const std::filesystem::path& path, size_t record_bytes);

  // The next record, of zeros. The span is valid until the next call.
  // Throws: Error when the disk is full
  std::span<std::byte> next();

  // Brings everything to the disk. Returns how many records there are.
  int64_t finish();

 private:
  void flush();

  OutputFile file_;
  size_t record_bytes_;
  std::vector<std::byte> records_;  // not written yet
  int64_t num_records_ = 0;
};

}  // namespace trireme::dataset::inline internal
