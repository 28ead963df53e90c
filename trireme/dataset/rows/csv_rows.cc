#include "trireme/dataset/rows/csv_rows.h"

#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/dataset/file/csv_lines.h"

namespace trireme::dataset {
namespace {

class CsvRows final : public RowSource {
 public:
  CsvRows(std::span<const std::string> paths, const CsvSource& like)
      : paths_(paths.begin(), paths.end()), like_(like) {
    for (const std::string& path : paths_) {
      CsvLines lines(path, like_.separator());
      total_ += lines.num_bytes();
      read_header(lines, path);
    }
  }

  void read(const std::function<void(Row)>& use) override {
    done_ = 0;
    for (const std::string& path : paths_) {
      CsvLines lines(path, like_.separator());
      const Header header = read_header(lines, path);
      const int64_t before = done_;
      int64_t number = 0;
      for (CsvRow cut; lines.next(cut);) {
        TRIREME_CHECK(cut.cells.size() == header.num_cells, lines.where(), " has ",
                      cut.cells.size(), " cells; expected ", header.num_cells,
                      ", as in its first line");
        const std::vector<std::string> cells(cut.cells.begin(), cut.cells.end());
        Row row{.path = path, .number = ++number};
        row.sample = like_.sample_of(cells, header.columns, lines.where());
        done_ = before + lines.num_read();
        use(std::move(row));
      }
      done_ = before + lines.num_bytes();
    }
  }

  int64_t num_done() const override { return done_; }
  int64_t num_total() const override { return total_; }
  std::string unit() const override { return ""; }
  std::string left_out() const override { return ""; }

 private:
  struct Header {
    size_t num_cells = 0;
    std::vector<size_t> columns{};
  };

  Header read_header(CsvLines& lines, const std::string& path) const {
    CsvRow row;
    TRIREME_CHECK(lines.next(row), path, " is empty; expected a line of column names");
    const std::vector<std::string> names(row.cells.begin(), row.cells.end());
    return {names.size(), like_.columns_in(names, path)};
  }

  std::vector<std::string> paths_;
  const CsvSource& like_;
  int64_t total_ = 0;
  int64_t done_ = 0;
};

}  // namespace

std::unique_ptr<RowSource> open_csv_rows(std::span<const std::string> paths,
                                         const CsvSource& like) {
  return std::make_unique<CsvRows>(paths, like);
}

}  // namespace trireme::dataset
