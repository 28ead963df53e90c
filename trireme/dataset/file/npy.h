// Tables of numbers in NumPy's .npy format, versions 1 to 3: a file, or an entry of an .npz
// archive. Reads a few rows at a time, never the whole table.
// Source: https://numpy.org/neps/nep-0001-npy-format.html and numpy/lib/format.py
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/file/new_file.h"

namespace trireme::dataset {

enum class NpyType { kFloat32, kInt32, kInt64 };
// By NumPy's names, which contain the byte order.
inline constexpr Choice<NpyType> kNpyTypes[] = {
    {"<f4", NpyType::kFloat32}, {"<i4", NpyType::kInt32}, {"<i8", NpyType::kInt64}};
inline constexpr size_t item_bytes(NpyType type) { return type == NpyType::kInt64 ? 8 : 4; }

struct NpyHeader {
  std::string type = {};  // in NumPy's words: "<f4"
  bool is_fortran_order = false;
  std::vector<int64_t> shape = {};  // none is negative
  size_t num_bytes = 0;             // of the header: where the numbers begin
};

inline constexpr size_t kMaxNpyHeaderBytes = 4096;  // NumPy's own limit is 10,000

// bytes: the first ones of the array, all that it has up to kMaxNpyHeaderBytes
// Throws: ConfigError that begins with `name` when they are not such a header
NpyHeader parse_npy_header(std::string_view bytes, const std::string& name);

// The header of rows * columns numbers, one row after another, as NumPy writes it.
std::string make_npy_header(NpyType type, int64_t rows, int64_t columns);

// Requirements on an array.
struct NpyForm {
  std::vector<NpyType> types = {};
  int64_t min_columns = 1, max_columns = 1;
};

// Thread safe.
class NpyArray {
 public:
  // A whole file.
  // Throws: ConfigError that begins with the path when it is not such a file, or when the array has
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

// Writes a table, row after row, whose size is known before.
class NpyWriter {
 public:
  // Throws: ConfigError when the file cannot be written
  NpyWriter(const std::filesystem::path& path, NpyType type, int64_t rows, int64_t columns);

  // Adds a row: `columns` numbers of `type`.
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

}  // namespace trireme::dataset
