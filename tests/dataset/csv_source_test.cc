#include "trireme/dataset/csv_source.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ATen.h>

#include "tests/dataset/data.h"
#include "tests/harness/tensors.h"

namespace trireme::dataset {
namespace {

class CsvSourceTest : public testing::Test {
 protected:
  CsvSource read(const std::string& text, CsvOptions options = {.target = "y"},
                 const CsvSource* like = nullptr) {
    write_text(path_, text);
    return CsvSource(path_, options, like);
  }
  void refuse(const std::string& text, const std::vector<std::string>& parts,
              CsvOptions options = {.target = "y"}, const CsvSource* like = nullptr) {
    write_text(path_, text);
    expect_config_error([&] { CsvSource(path_, options, like); }, parts);
  }
  static at::Tensor get(const CsvSource& source, int64_t row, const char* name) {
    return find_tensor(source.get(row, std::nullopt), name);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "table.csv";
};

TEST_F(CsvSourceTest, ReadsNumbersCategoriesAndClasses) {
  const CsvSource source = read("a,y,colour,b\n1,cat,red,-2.5\n3e2,dog,blue,0\n0.5,cat,blue,7\n");
  EXPECT_EQ(source.size(), 3);
  EXPECT_EQ(source.num_numbers(), 2);
  EXPECT_EQ(source.classes(), (std::vector<std::string>{"cat", "dog"}));
  harness::assert_same_bits(get(source, 1, "x"), at::tensor({300.0F, 0.0F}), "numbers");
  EXPECT_EQ(get(source, 0, "categories")[0].item<int64_t>(), 1) << "red comes after blue";
  EXPECT_EQ(get(source, 1, "categories")[0].item<int64_t>(), 0);
  EXPECT_EQ(get(source, 1, "y").item<int64_t>(), 1);
  EXPECT_EQ(get(source, 2, "y").item<int64_t>(), 0);
}

TEST_F(CsvSourceTest, ATargetMayBeANumber) {
  const CsvSource source = read("a,y\n1,0.5\n2,-3\n", {.target = "y", .is_class = false});
  EXPECT_EQ(source.num_classes(), 0);
  EXPECT_EQ(get(source, 0, "y").item<float>(), 0.5F);
  EXPECT_FALSE(get(source, 0, "categories").defined());
}

TEST_F(CsvSourceTest, ReadsQuotesTabsAndTheLineEndsOfWindows) {
  const CsvSource source = read(
      "\xEF\xBB\xBF"
      "y,name\r\n1,\"a, \"\"b\"\"\nc\"\r\n\r\n2,d\r\n");
  EXPECT_EQ(source.size(), 2);
  const CsvSource tabs = read("y\tx\n1\t2\n3\t4", {.target = "y", .separator = '\t'});
  EXPECT_EQ(tabs.size(), 2);
  EXPECT_EQ(get(tabs, 1, "x")[0].item<float>(), 4.0F);
}

TEST_F(CsvSourceTest, NumbersCategoriesWhateverTheOrderOfRows) {
  const CsvSource one = read("y,c\n1,b\n1,a\n");
  const CsvSource other = read("y,c\n1,a\n1,b\n");
  EXPECT_EQ(get(one, 0, "categories").item<int64_t>(), get(other, 1, "categories").item<int64_t>());
}

TEST_F(CsvSourceTest, TakesTheColumnsAndCategoriesOfAnother) {
  const CsvSource training = read("a,c,y\n1,red,cat\n2,blue,dog\n");
  const CsvSource validation = read("y,a,c,more\ndog,5,blue,9\n", {.target = "y"}, &training);
  EXPECT_EQ(validation.num_numbers(), 1);
  EXPECT_EQ(get(validation, 0, "x")[0].item<float>(), 5.0F);
  EXPECT_EQ(get(validation, 0, "y").item<int64_t>(), 1);
  refuse("y,a,c\nbird,5,blue\n", {path_ + ":2: y is \"bird\"", "the training data does not have"},
         {.target = "y"}, &training);
  refuse("y,a,c\ncat,5,green\n", {":2: c is \"green\""}, {.target = "y"}, &training);
  refuse("y,a,c\ncat,five,blue\n", {":2: a is \"five\"", "finite number"}, {.target = "y"},
         &training);
  refuse("y,a\ncat,5\n", {"no column \"c\""}, {.target = "y"}, &training);
}

TEST_F(CsvSourceTest, TakesAFewTimesTheMemoryOfItsText) {
  std::string text = "y,colour";
  for (int column = 0; column < 60; ++column) text += concat(",c", column);
  for (int row = 0; row < 100'000; ++row) {
    text += row % 2 == 0 ? "\ncat,red" : "\ndog,\"blue\"";
    for (int column = 0; column < 60; ++column) text += concat(",", (row + column) % 10);
  }
  write_text(path_, text);
  const size_t num_bytes = text.size();
  text = {};
  const pid_t child = fork();  // whose peak is its own
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto peak = [] {
      rusage usage{};
      getrusage(RUSAGE_SELF, &usage);
      return static_cast<size_t>(usage.ru_maxrss) << 10;
    };
    const size_t before = peak();
    const CsvSource source(path_, {.target = "y"});
    _exit(source.size() == 100'000 && peak() - before < 5 * num_bytes ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CsvSourceTest, NamesTheLineThatIsWrong) {
  refuse("a,y\n1,2\n1,2,3\n", {path_ + ":3 has 3 cells", "expected 2"});
  refuse("a,y\n1,2\n\n\n1\n", {path_ + ":5 has 1 cells"});
  refuse("a,y\n1,\n", {path_ + ":2: y is empty"});
  refuse("a,y\n1,2\nnan,2\n", {path_ + ":3: a is \"nan\"", "finite"});
  refuse("a,y\n1e39,2\n", {path_ + ":2: a is \"1e39\"", "finite"});
  refuse("a,y\n\"1,2\n", {path_ + ":2: a quote is not closed"});
  refuse("a,y\n\"1\"x,2\n", {path_ + ":2: text after a closing quote"});
  refuse("a,b\n1,2\n", {"has no column \"y\""});
  refuse("a,y\n", {"has no rows"});
  refuse("", {"is empty"});
  refuse("a,y\n1,x\n", {":2: y is \"x\"", "finite number"}, {.target = "y", .is_class = false});
  refuse(std::string(100'000, ','), {"more than 65536 cells"});
  refuse("a,y\n1,2\n", {"table.csv"}, {.target = "y", .max_bytes = 4});
  expect_config_error([&] { CsvSource(folder_ / "none.csv", {.target = "y"}); }, {"none.csv"});
}

}  // namespace
}  // namespace trireme::dataset
