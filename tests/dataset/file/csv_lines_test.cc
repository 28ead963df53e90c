#include "trireme/dataset/file/csv_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

class CsvLinesTest : public ::testing::Test {
 protected:
  using Rows = std::vector<std::vector<std::string>>;

  Rows read(const std::string& text, char separator = ',') {
    write_file_atomically(path_, text);
    CsvLines lines(path_, separator);
    Rows rows;
    places_.clear();
    for (CsvRow row; lines.next(row);) {
      rows.emplace_back(row.cells.begin(), row.cells.end());
      places_.push_back(lines.where().substr(path_.size()));
    }
    EXPECT_EQ(lines.num_read(), lines.num_bytes());
    return rows;
  }
  std::string refusal(const std::string& text) {
    const std::string message = harness::message_of<ConfigError>([&] { read(text); });
    return message.substr(std::min(message.size(), path_.size()));
  }

  harness::TemporaryFolder folder_;
  std::string path_ = (folder_ / "table.csv").string();
  std::vector<std::string> places_;
};

TEST_F(CsvLinesTest, AQuotedCellGoesOnInTheNextLine) {
  EXPECT_EQ(read("a,b\n\"1\n2, \"\"x\"\"\",3\n\n4,5"),
            (Rows{{"a", "b"}, {"1\n2, \"x\"", "3"}, {"4", "5"}}));
  EXPECT_EQ(places_, (std::vector<std::string>{":1", ":2", ":5"}));
}

TEST_F(CsvLinesTest, LinesMayEndInCarriageReturnsAndBeginWithAMark) {
  EXPECT_EQ(read("\xEF\xBB\xBF"
                 "a;b\r\n1;\r\n",
                 ';'),
            (Rows{{"a", "b"}, {"1", ""}}));
}

TEST_F(CsvLinesTest, WrongRowsAreRefusedWithTheirPlace) {
  EXPECT_EQ(refusal("a\n\"1\n2\n"), ":2: a quote is not closed");
  EXPECT_EQ(refusal("a\n1\r2\n"),
            ":2 has a carriage return between cells; expected rows that end in a line feed");
  EXPECT_EQ(refusal(""), " is empty; expected lines of text");
  const std::string long_row =
      "a\n\"" + std::string(kMaxLineBytes - 10, 'x') + "\nyyyyyyyyyyyy\"\n";
  EXPECT_EQ(refusal(long_row),
            ":2 has more than 1048576 bytes; expected shorter rows, or a quote "
            "that is closed");
}

}  // namespace
}  // namespace trireme::dataset
