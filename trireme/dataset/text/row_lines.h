// The rows of files of JSON lines, such as conversations or labelled texts, and which of them are
// for validation. Knows no row's contents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/file/text_lines.h"
#include "trireme/dataset/text/documents.h"

namespace trireme::dataset {

// The lines of all files, one at a time.
class RowLines {
 public:
  // files: outlive this. most_bytes: of a line
  // Throws: as TextLines
  RowLines(const std::vector<Document>& files, size_t most_bytes);

  // The next line that is not blank; false after the last. Throws: as TextLines
  bool next(std::string_view& line);
  std::string where() const { return lines_->where(); }
  size_t file() const { return file_; }  // its index
  int64_t line_number() const { return lines_->number(); }
  // That of the file of this line.
  std::filesystem::path folder() const {
    return std::filesystem::path(files_[file_].path).parent_path();
  }
  int64_t num_read() const { return done_ + (lines_ ? lines_->num_read() : 0); }
  // Between 0 and 1, of (seed, file name, number of the row in it).
  double draw(uint64_t seed) const;

 private:
  void open();

  const std::vector<Document>& files_;
  size_t most_bytes_;
  size_t file_ = 0;
  std::optional<TextLines> lines_;
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
  size_t most_bytes = 0;   // of a line
  std::string row{"row"};  // what one is to the user
};

// Throws: ConfigError when there is only one row, and as RowLines
RowSplit choose_split(const std::vector<Document>& files, const SplitOptions& options);

}  // namespace trireme::dataset
