#include "trireme/dataset/file/csv_cells.h"

#include <utility>

#include "trireme/base/error.h"

namespace trireme::dataset {

CsvCells::CsvCells(std::string_view text, char separator, std::string path, int64_t first_line)
    : text_(text), separator_(separator), path_(std::move(path)), line_(first_line) {
  if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
}

bool CsvCells::next(CsvRow& row) {
  while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) skip_line_end();
  if (at_ >= text_.size()) return false;
  row.line = line_;
  row.cells.clear();
  unquoted_.clear();
  while (true) {
    row.cells.push_back(cell());
    TRIREME_CHECK(row.cells.size() <= kMostColumns, path_, ":", row.line, ": more than ",
                  kMostColumns, " cells; expected a table");
    if (at_ >= text_.size()) return true;
    if (text_[at_] != separator_) break;
    ++at_;
  }
  skip_line_end();
  return true;
}

void CsvCells::skip_line_end() {
  if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
  ++at_;
  ++line_;
}

std::string_view CsvCells::cell() {
  if (at_ >= text_.size() || text_[at_] != '"') {
    const size_t begin = at_;
    while (at_ < text_.size() && !ends_cell(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  const int64_t begin_line = line_;
  std::string value;
  for (++at_; at_ < text_.size(); ++at_) {
    if (text_[at_] == '\n') ++line_;
    if (text_[at_] != '"') {
      value += text_[at_];
    } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
      value += text_[at_++];
    } else {
      ++at_;
      TRIREME_CHECK(at_ >= text_.size() || ends_cell(text_[at_]), path_, ":", line_,
                    ": text after a closing quote; double the quotes inside a cell");
      return unquoted_.emplace_back(std::move(value));
    }
  }
  throw ConfigError(concat(path_, ":", begin_line, ": a quote is not closed"));
}

}  // namespace trireme::dataset
