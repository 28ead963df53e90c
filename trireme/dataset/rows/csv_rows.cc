#include "trireme/dataset/rows/csv_rows.h"

#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/dataset/file/csv_lines.h"
#include "trireme/dataset/rows/file_rows.h"

namespace trireme::dataset {
namespace {

class CsvRows final : public FileRows {
 public:
  CsvRows(std::span<const std::string> paths, const CsvSource& like) : like_(like) {
    for (const std::string& path : paths) {
      CsvLines lines(path, like_.separator());
      read_header(lines, path);
      add_file(path, lines.num_bytes());
    }
  }

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

  void read_file(size_t /*index*/, const std::string& path, const Use& use) override {
    CsvLines lines(path, like_.separator());
    const Header header = read_header(lines, path);
    int64_t number = 0;
    for (CsvRow cut; lines.next(cut);) {
      TRIREME_CHECK(cut.cells.size() == header.num_cells, lines.where(), " has ", cut.cells.size(),
                    " cells; expected ", header.num_cells, ", as in its first line");
      const std::vector<std::string> cells(cut.cells.begin(), cut.cells.end());
      Row row{.number = ++number};
      row.sample = like_.sample_of(cells, header.columns, lines.where());
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
