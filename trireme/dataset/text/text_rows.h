// Rows that have a text, of files of JSON lines, Parquet or Arrow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/columns/text_column.h"
#include "trireme/dataset/text/documents.h"
#include "trireme/dataset/text/json_text.h"

namespace trireme::dataset {

struct TextRowForm {
  TextKey key;                            // the member or column that has the text
  std::optional<ColumnFormat> columns{};  // without: JSON lines
};

struct StoredRow {
  std::string_view bytes{};  // the line, or the value of the column
  bool is_null = false;      // the value
};

// The rows of all files, one at a time. Only text_of() is thread safe.
class TextRows {
 public:
  virtual ~TextRows() = default;

  // The next row, until the next call; false after the last.
  // Throws: ConfigError with the path when a file cannot be read
  virtual bool next(StoredRow& row) = 0;
  // Of that row: the start of every message about it.
  virtual std::string where() const = 0;
  // Bytes of the files, as stored, up to its end; of columns about so many.
  virtual int64_t num_read() const = 0;

  // Throws: ConfigError when the row has none
  virtual std::string text_of(const StoredRow& row, const std::string& where) const = 0;
};

// files: outlive the rows
// Throws: ConfigError when the first file cannot be read
std::unique_ptr<TextRows> open_text_rows(const std::vector<Document>& files,
                                         const TextRowForm& form);

}  // namespace trireme::dataset
