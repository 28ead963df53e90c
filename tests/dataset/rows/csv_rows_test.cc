#include "trireme/dataset/rows/csv_rows.h"

#include <ATen/ATen.h>

#include "tests/dataset/data.h"
#include "tests/dataset/rows/collected.h"
#include "tests/harness/tensors.h"

namespace trireme::dataset {
namespace {

class CsvRowsTest : public testing::Test {
 protected:
  CsvRowsTest() {
    write_text(table_, "a,y,colour,b\n1,cat,red,2\n3,dog,blue,4\n");
    like_ = std::make_unique<CsvSource>(table_, CsvOptions{.target = "y"});
  }
  std::string put(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    write_text(path, text);
    return path;
  }
  std::vector<Row> read(const std::vector<std::string>& paths) {
    const auto rows = open_csv_rows(paths, *like_);
    std::vector<Row> all = collected(*rows);
    EXPECT_EQ(rows->num_done(), rows->num_total());
    return all;
  }

  TemporaryFolder folder_;
  std::string table_ = folder_ / "table.csv";
  std::unique_ptr<CsvSource> like_;
};

TEST_F(CsvRowsTest, RowsAreThoseOfTheTableWithoutItsTarget) {
  const std::string path = put("rows.csv", "a,y,colour,b\n1,cat,red,2\n3,dog,blue,4\n");
  const std::vector<Row> rows = read({path});
  ASSERT_EQ(rows.size(), 2U);
  for (int64_t i = 0; i < 2; ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    const NamedTensors sample = like_->get(i, std::nullopt);
    EXPECT_EQ(row.path, path);
    EXPECT_EQ(row.number, i + 1);
    for (const char* const name : {"x", "categories"}) {
      harness::assert_same_bits(tensor_of(row, name), find_tensor(sample, name), name);
    }
    EXPECT_FALSE(tensor_of(row, "y").defined());
  }
}

TEST_F(CsvRowsTest, ColumnsHaveAnyOrderAndSomeMayBeForeign) {
  const std::vector<Row> rows =
      read({put("one.csv", "note,colour,b,a\n\"two\nlines, \"\"quoted\"\"\",blue,5,6\n"),
            put("two.csv",
                "\xEF\xBB\xBF"
                "b,a,colour\r\n7,8,red\r\n\r\n9,10,red\r\n")});
  ASSERT_EQ(rows.size(), 3U);
  harness::assert_same_bits(tensor_of(rows[0], "x"), at::tensor({6.0F, 5.0F}), "by name");
  harness::assert_same_bits(tensor_of(rows[2], "x"), at::tensor({10.0F, 9.0F}), "by name");
  EXPECT_EQ(tensor_of(rows[1], "categories").item<int64_t>(), 1);
  EXPECT_EQ(rows[2].number, 2) << "rows are counted in their file";
}

TEST_F(CsvRowsTest, WrongRowsAreNamedByFileAndLine) {
  const auto refuse = [&](const std::string& text, const std::vector<std::string>& parts) {
    const std::string path = put("wrong.csv", text);
    expect_config_error([&] { read({path}); }, parts);
  };
  refuse("a,colour\n1,red\n", {"wrong.csv has no column \"b\""});
  refuse("a,b,colour\n1,2,red\n1,2\n", {"wrong.csv:3 has 2 cells; expected 3"});
  refuse("a,b,colour\n1,x,red\n", {"wrong.csv:2", "b is \"x\"", "finite number"});
  refuse("a,b,colour\n1,,red\n", {"wrong.csv:2", "b is \"\""});
  refuse("a,b,colour\n1,2,green\n", {"wrong.csv:2", "colour is \"green\""});
  refuse("a,b,colour\n1,2,\"red\n", {"wrong.csv:2", "quote is not closed"});
  refuse("a,b,colour\n1,2,red\r3,4,red\n", {"wrong.csv:2", "carriage return"});
  refuse("", {"wrong.csv is empty"});
  expect_config_error([&] { read({folder_ / "none.csv"}); }, {"none.csv"});
}

}  // namespace
}  // namespace trireme::dataset
