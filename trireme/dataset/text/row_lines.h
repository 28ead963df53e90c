// The rows of files of JSON lines, such as conversations or labelled texts, and which of them are
// for validation. Knows no row's contents. Rows of Parquet and Arrow files are lines too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/columns/text_column.h"
#include "trireme/dataset/file/text_lines.h"
#include "trireme/dataset/text/documents.h"

namespace trireme::dataset {

struct LineForm {
  size_t most_bytes = 0;  // of a line
  // The columns of Parquet and Arrow files, told by their first bytes, that become members of a
  // line (open_json_rows()). None: every file is text.
  std::span<const std::string_view> columns{};
};

// The lines of all files, one at a time.
class RowLines {
 public:
  // files: outlive this
  // Throws: as TextLines and open_json_rows()
  RowLines(const std::vector<Document>& files, LineForm form);

  // The next line that is not blank; false after the last.
  // Throws: as TextLines; ConfigError with file and row for a damaged column
  bool next(std::string_view& line);
  // "chat.jsonl:7", or "chat.parquet, row 7".
  std::string where() const;
  size_t file() const { return file_; }  // its index
  // Of a file of text.
  int64_t line_number() const { return lines_->number(); }
  // That of the file of this line.
  std::filesystem::path folder() const {
    return std::filesystem::path(files_[file_].path).parent_path();
  }
  int64_t num_read() const;
  // Between 0 and 1, of (seed, file name, number of the row in it). x.parquet counts as x.jsonl, so
  // that the same rows have the same draws.
  double draw(uint64_t seed) const;

 private:
  void open();
  bool next_line(std::string_view& line);
  bool next_value(std::string_view& line);

  const std::vector<Document>& files_;
  LineForm form_;
  size_t file_ = 0;
  std::optional<TextLines> lines_;        // of a file of text
  std::unique_ptr<TextColumn> column_{};  // of another
  std::vector<std::optional<std::string_view>> values_{};
  size_t at_ = 0;        // of values_, the next
  int64_t number_ = -1;  // of the row in its file
  int64_t done_ = 0;     // bytes of the files before it
};

// Which rows are for validation: those with a draw below the fraction, and at least one on either
// side.
struct RowSplit {
  double fraction = 0;
  int64_t lowest = -1;   // the row with the lowest draw, over all files
  int64_t highest = -1;  // and the one with the highest

  bool is_validation(int64_t index, double draw) const {
    if (fraction == 0 || index == highest) return false;
    return index == lowest || draw < fraction;
  }
};

struct SplitOptions {
  double fraction = 0;  // of the rows
  uint64_t seed = 1;
  LineForm form{};
  std::string row{"row"};  // what one is to the user
};

// Throws: ConfigError when there is only one row, and as RowLines
RowSplit choose_split(const std::vector<Document>& files, const SplitOptions& options);

}  // namespace trireme::dataset
