#include "trireme/dataset/rows/csv_rows.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/dataset/file/csv_cells.h"
#include "trireme/dataset/file/text_lines.h"
#include "trireme/dataset/rows/file_rows.h"

namespace trireme::dataset {
namespace {

// The lines of a file, joined where a quoted cell goes on in the next one.
class JoinedLines {
 public:
  explicit JoinedLines(const std::string& path) : lines_(path), path_(path) {}

  // False after the last row. Skips empty lines, as CsvCells does.
  bool next(std::string& text) {
    std::string_view line;
    do {
      if (!lines_.next(line)) return false;
      begin_ = lines_.number();
    } while (line.empty());
    text = line;
    const auto has_odd_quotes = [&line] { return std::ranges::count(line, '"') % 2 == 1; };
    bool is_open = has_odd_quotes();
    while (is_open && lines_.next(line)) {
      text += '\n';
      text += line;
      if (has_odd_quotes()) is_open = false;
      TRIREME_CHECK(text.size() <= kMaxLineBytes, path_, ":", begin_, " has more than ",
                    kMaxLineBytes, " bytes; expected shorter rows, or a quote that is closed");
    }
    return true;
  }
  int64_t number() const { return begin_; }  // of the row's first line
  int64_t num_bytes() const { return lines_.num_bytes(); }
  int64_t num_read() const { return lines_.num_read(); }

 private:
  TextLines lines_;
  std::string path_;
  int64_t begin_ = 0;
};

// The cells of one row.
std::vector<std::string> cells_of(const std::string& text, char separator, const std::string& path,
                                  int64_t line) {
  CsvCells cells(text, separator, path, line);
  CsvRow row;
  std::vector<std::string> found;
  if (cells.next(row)) found.assign(row.cells.begin(), row.cells.end());
  TRIREME_CHECK(!cells.next(row), path, ":", line,
                " has a carriage return between cells; expected rows that end in a line feed");
  return found;
}

class CsvRows final : public FileRows {
 public:
  CsvRows(std::span<const std::string> paths, const CsvSource& like) : like_(like) {
    for (const std::string& path : paths) {
      JoinedLines lines(path);
      read_header(lines, path);
      add_file(path, lines.num_bytes());
    }
  }

 private:
  struct Header {
    size_t num_cells = 0;
    std::vector<size_t> columns{};
  };

  Header read_header(JoinedLines& lines, const std::string& path) const {
    std::string text;
    TRIREME_CHECK(lines.next(text), path, " is empty; expected a line of column names");
    const std::vector<std::string> names = cells_of(text, like_.separator(), path, lines.number());
    return {names.size(), like_.columns_in(names, path)};
  }

  void read_file(size_t /*index*/, const std::string& path, const Use& use) override {
    JoinedLines lines(path);
    const Header header = read_header(lines, path);
    int64_t number = 0;
    for (std::string text; lines.next(text);) {
      const std::vector<std::string> cells =
          cells_of(text, like_.separator(), path, lines.number());
      TRIREME_CHECK(cells.size() == header.num_cells, path, ":", lines.number(), " has ",
                    cells.size(), " cells; expected ", header.num_cells, ", as in its first line");
      Row row{.number = ++number};
      row.sample = like_.sample_of(cells, header.columns, concat(path, ":", lines.number()));
      use(std::move(row), lines.num_read());
    }
  }

  const CsvSource& like_;
};

}  // namespace

std::unique_ptr<RowSource> open_csv_rows(std::span<const std::string> paths,
                                         const CsvSource& like) {
  return std::make_unique<CsvRows>(paths, like);
}

}  // namespace trireme::dataset
