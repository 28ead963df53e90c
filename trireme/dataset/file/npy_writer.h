// Writes a table of numbers in NumPy's format .npy, row after row, whose size is known before.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "trireme/dataset/file/new_file.h"
#include "trireme/dataset/file/npy_header.h"

namespace trireme::dataset::inline internal {

class NpyWriter {
 public:
  // Throws: ConfigError when the file cannot be written
  NpyWriter(const std::filesystem::path& path, NpyType type, int64_t rows, int64_t columns);

  // A row: so many numbers of this type.
  void add(std::span<const std::byte> row);
  // The file appears. Returns its size.
  int64_t finish();

 private:
  void flush();

  NewFile file_;
  std::string bytes_;  // not written yet
  int64_t num_bytes_ = 0;
  size_t row_bytes_;
  int64_t rows_left_;
};

}  // namespace trireme::dataset::inline internal
