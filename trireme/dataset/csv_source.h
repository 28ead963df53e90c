// Rows of a table in a text file: CSV (RFC 4180) or TSV, with a line of column names first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/source.h"

namespace trireme::dataset {

struct CsvOptions {
  std::string target;                      // the column to predict
  char separator = ',';                    // '\t' for TSV
  bool is_class = true;                    // the target is a class; false: a number
  uint64_t max_bytes = uint64_t{1} << 30;  // a larger file is refused, because all of it is read
};

// Each column is one of numbers, when every cell is a number, or of categories. Categories are
// numbered in the order of their bytes, whatever the order of rows. A sample has
//   x           [columns of numbers] fp32
//   categories  [columns of categories] int64; only if there are any
//   y           int64: the class; or fp32 when the target is a number
// In memory: 4 bytes per cell, and while it is opened the text and each name of a category once.
class CsvSource : public Source {
 public:
  // like: takes the columns and the categories of another file, such as the training data's, and
  //       refuses other ones.
  // Throws: ConfigError with the path, and the line where one is wrong: another number of cells, a
  //         cell that is empty, infinite or NaN, a category or a column that `like` does not have
  CsvSource(const std::filesystem::path& path, const CsvOptions& options,
            const CsvSource* like = nullptr);

  int64_t size() const override { return num_rows_; }
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const override;

  int64_t num_numbers() const { return static_cast<int64_t>(numbers_.size()); }
  // 0 when the target is a number.
  int64_t num_classes() const { return static_cast<int64_t>(classes_.size()); }
  // The names of the classes, by number.
  const std::vector<std::string>& classes() const { return classes_; }
  char separator() const { return separator_; }

  // For rows of other files, without the target.

  // The places of this table's columns in a line of column names: numbers, then categories.
  // Throws: ConfigError with the path and the column that is missing
  std::vector<size_t> columns_in(std::span<const std::string> header,
                                 const std::string& path) const;
  // The sample of a row, without "y".
  // columns: of columns_in(). where: file and line, for messages
  // Throws: ConfigError as the constructor
  NamedTensors sample_of(std::span<const std::string> cells, std::span<const size_t> columns,
                         const std::string& where) const;

 private:
  struct Column {
    std::string name;
    size_t index = 0;                       // among all columns of the file
    std::vector<std::string> categories{};  // sorted; empty: numbers
  };

  char separator_;
  std::vector<Column> numbers_;
  std::vector<Column> categories_;
  std::vector<std::string> classes_;
  int64_t num_rows_ = 0;
  std::vector<float> values_;          // [rows, numbers]
  std::vector<int32_t> codes_;         // [rows, categories]
  std::vector<int32_t> target_class_;  // [rows] if the target is a class
  std::vector<float> target_value_;    // [rows] if it is a number
};

}  // namespace trireme::dataset
