#include "trireme/dataset/file/csv_lines.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"

namespace trireme::dataset {

CsvLines::CsvLines(std::string path, char separator)
    : path_(std::move(path)), separator_(separator), lines_(path_) {}

std::string CsvLines::where() const { return concat(path_, ":", begin_); }

bool CsvLines::next_text() {
  std::string_view line;
  do {
    if (!lines_.next(line)) return false;
    begin_ = lines_.number();
  } while (line.empty());
  text_ = line;
  const auto has_odd_quotes = [&line] { return std::ranges::count(line, '"') % 2 == 1; };
  bool is_open = has_odd_quotes();
  while (is_open && lines_.next(line)) {
    text_ += '\n';
    text_ += line;
    if (has_odd_quotes()) is_open = false;
    TRIREME_CHECK(text_.size() <= kMaxLineBytes, where(), " has more than ", kMaxLineBytes,
                  " bytes; expected shorter rows, or a quote that is closed");
  }
  return true;
}

bool CsvLines::next(CsvRow& row) {
  if (!next_text()) return false;
  cells_.emplace(text_, separator_, path_, begin_);
  const bool has_cells = cells_->next(row);
  TRIREME_CHECK(has_cells && cells_->is_at_end(), where(),
                " has a carriage return between cells; expected rows that end in a line feed");
  return true;
}

}  // namespace trireme::dataset
