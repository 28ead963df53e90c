// Cuts CSV text (RFC 4180) into rows and cells. Keeps no rows: as strings they take many times the
// memory of the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::dataset {

struct CsvRow {
  int64_t line = 0;                       // where it begins
  std::vector<std::string_view> cells{};  // valid until the next row is cut
};

// A cell in double quotes may hold separators, line ends and doubled quotes. Not thread safe.
class CsvCells {
 public:
  static constexpr size_t kMostColumns = size_t{1} << 16;

  // text: must outlive this. path, first_line: for messages
  CsvCells(std::string_view text, char separator, std::string path, int64_t first_line = 1);

  // False at the end. Skips empty lines.
  // Throws: ConfigError with path and line for more than kMostColumns cells, a quote that is not
  //         closed, or text behind one
  bool next(CsvRow& row);
  bool is_at_end() const { return at_ >= text_.size(); }

 private:
  void skip_line_end();
  bool ends_cell(char c) const { return c == separator_ || c == '\n' || c == '\r'; }
  std::string_view cell();

  std::string_view text_;
  char separator_;
  std::string path_;
  size_t at_ = 0;
  int64_t line_;
  std::deque<std::string> unquoted_{};  // cells of the row, whose addresses stay
};

}  // namespace trireme::dataset
