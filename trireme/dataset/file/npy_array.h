// A table of numbers in NumPy's format .npy: a file, or an entry of an archive .npz. Reads rows in
// pieces, and never the whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/dataset/file/npy_header.h"

namespace trireme::dataset::inline internal {

// What an array must be.
struct NpyForm {
  std::vector<NpyType> types = {};
  int64_t min_columns = 1, max_columns = 1;
};

// Thread safe.
class NpyArray {
 public:
  // A whole file.
  // Throws: ConfigError that begins with the path when it is no such file, or when the array has
  //         another form or another size than its header says
  NpyArray(const std::filesystem::path& path, const NpyForm& form);
  // The `size` bytes of the file from `begin` on. name: for messages
  NpyArray(std::shared_ptr<const InputFile> file, uint64_t begin, uint64_t size, std::string name,
           const NpyForm& form);

  const std::string& name() const { return name_; }
  NpyType type() const { return type_; }
  int64_t num_rows() const { return num_rows_; }  // at least 1
  int64_t num_columns() const { return num_columns_; }
  size_t row_bytes() const { return static_cast<size_t>(num_columns_) * item_bytes(type_); }

  // Fills `rows` with whole rows from `first` on.
  // Throws: ConfigError when the file has become shorter
  void read(int64_t first, std::span<std::byte> rows) const;

 private:
  NpyArray(const std::shared_ptr<const InputFile>& file, const NpyForm& form);
  void check_form(const NpyHeader& header, const NpyForm& form);

  std::shared_ptr<const InputFile> file_;
  std::string name_;
  uint64_t begin_;
  NpyType type_ = NpyType::kFloat32;
  int64_t num_rows_ = 0;
  int64_t num_columns_ = 0;
};

// The rows of an array in turn. Memory: 256 KiB, or a row if it is larger
class NpyRows {
 public:
  explicit NpyRows(const NpyArray& array);
  // The bytes of the next row, valid until the next call.
  // Throws: as NpyArray::read()
  std::span<const std::byte> next();

 private:
  const NpyArray* array_;
  std::vector<std::byte> piece_;
  size_t at_;         // in piece_
  int64_t next_ = 0;  // the first row behind piece_
};

}  // namespace trireme::dataset::inline internal
