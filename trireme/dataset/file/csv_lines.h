// The rows of a CSV file, read in pieces (text_lines.h). Keeps one row at a time. The file may be
// compressed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/dataset/file/csv_cells.h"
#include "trireme/dataset/file/text_lines.h"

namespace trireme::dataset {

// Not thread safe.
class CsvLines {
 public:
  // Throws: as TextLines
  CsvLines(std::string path, char separator);

  // The next row. False after the last. Skips empty lines. Its cells are valid until the next call.
  // Throws: ConfigError with the file and the line for a row of more than kMaxLineBytes or one that
  //         CsvCells refuses; as TextLines::next()
  bool next(CsvRow& row);

  std::string where() const;  // "day_0.csv:12", where the row begins
  // Of the file as stored.
  int64_t num_bytes() const { return lines_.num_bytes(); }
  int64_t num_read() const { return lines_.num_read(); }

 private:
  bool next_text();

  std::string path_;
  char separator_;
  TextLines lines_;
  std::string text_{};  // of the row, joined where a quoted cell goes on in the next line
  int64_t begin_ = 0;
  std::optional<CsvCells> cells_{};  // of text_
};

}  // namespace trireme::dataset
