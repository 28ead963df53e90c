// Rows that have a text, of files of JSON lines, Parquet or Arrow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
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

// Which row it is.
struct RowPlace {
  size_t file = 0;
  int64_t number = 0;  // of the line or row in it, from 1
};

// The rows of all files, one at a time. Only text_in() and where() are thread safe.
class TextRows {
 public:
  virtual ~TextRows() = default;

  // The next row, until the next call; false after the last.
  // Throws: ConfigError with the path when a file cannot be read
  virtual bool next(StoredRow& row) = 0;
  // Of that row.
  virtual RowPlace place() const = 0;
  // Bytes of the files, as stored, up to its end; of columns about so many.
  virtual int64_t num_read() const = 0;

  // The start of every message about a row.
  virtual std::string where(const RowPlace& place) const = 0;
  // The text of a row of which `bytes` are a copy. It takes the place of their beginning: no text
  // is longer than its row. Behind them, kJsonPadding bytes can be read.
  // Throws: ConfigError when the row has none
  virtual std::string_view text_in(std::span<char> bytes, bool is_null,
                                   const RowPlace& place) const = 0;
};

// files: outlive the rows
// Throws: ConfigError when the first file cannot be read
std::unique_ptr<TextRows> open_text_rows(const std::vector<Document>& files,
                                         const TextRowForm& form);

}  // namespace trireme::dataset
