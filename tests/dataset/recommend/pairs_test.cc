#include "trireme/dataset/recommend/raw_data.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/dataset/recommend/raw_recorder.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

class PairsOf : public ::testing::Test {
 protected:
  std::unique_ptr<RawData> open(const std::string& text) {
    write_file_atomically(path_, text);
    return open_pairs({path_.string()});
  }
  std::string error_of(const std::string& text) {
    RawRecorder recorder;
    const std::string message =
        harness::message_of<ConfigError>([&] { open(text)->read(recorder); });
    return message.substr(std::min(message.size(), path_.string().size()));
  }
  harness::TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "pairs.tsv";
  using Strings = std::vector<std::string>;
};

TEST_F(PairsOf, AQueryAndAnItemAreLines) {
  RawRecorder recorder;
  open("query\titem\nann\tbook\nben\tpen\n")->read(recorder);
  EXPECT_EQ(recorder.items, (Strings{"book:book", "pen:pen"}));
  EXPECT_EQ(recorder.samples, (Strings{"book:ann", "pen:ben"}));
}

TEST_F(PairsOf, BothSidesMayHaveFeaturesWithManyValues) {
  const auto data =
      open("item\tquery.seen*\titem.tags*\tquery\nbook\ta|b\tred|old\tann\npen\t\t\tben\n");
  const FeatureSchema& schema = data->schema();
  ASSERT_EQ(schema.tables.size(), 4U);
  EXPECT_EQ(schema.tables[0].name, "query.seen");
  EXPECT_EQ(schema.tables[0].min_ids, 0);
  EXPECT_EQ(schema.tables[1].name, "query");
  EXPECT_EQ(schema.tables[1].max_ids, 1);
  EXPECT_EQ(schema.tables[2].name, "item");
  EXPECT_EQ(schema.tables[3].side, TableSide::kItem);
  RawRecorder recorder;
  data->read(recorder);
  EXPECT_EQ(recorder.items, (Strings{"book:book,red|old", "pen:pen,"}));
  EXPECT_EQ(recorder.samples, (Strings{"book:a|b,ann", "pen:,ben"}));
}

TEST_F(PairsOf, WrongTextIsRefusedWithItsPlace) {
  EXPECT_EQ(error_of("user\titem\n"),
            ":1: column 1 is named \"user\"; expected query, item, query.NAME or item.NAME");
  EXPECT_EQ(error_of("query\n"),
            ":1 names no column of items; expected query and item, separated by tabs");
  EXPECT_EQ(error_of("query\titem*\n"),
            ":1: \"item*\" is the first column of items; expected one without *, which says which "
            "item it is");
  EXPECT_EQ(error_of("query\titem\na\tb\tc\n"),
            ":2 has 3 columns; expected 2, as in its first line");
  EXPECT_EQ(error_of("query\titem\na\t" + std::string(5000, 'x') + "\n"),
            ":2: column 2 (item) has a value of 5000 bytes; expected at most 4096");
  std::string many = "1";
  for (int i = 0; i < 64; ++i) many += "|1";
  EXPECT_EQ(error_of("query*\titem\n" + many + "\tb\n"),
            ":2: column 1 (query) has 65 values; expected at most 64");
}

TEST_F(PairsOf, SeveralFilesHaveOneFirstLine) {
  open("query\titem\na\tb\n");
  const std::string other = (folder_ / "other").string();
  write_file_atomically(other, "item\tquery\nb\ta\n");
  EXPECT_EQ(harness::message_of<ConfigError>([&] {
              open_pairs({path_.string(), other});
            }),
            other + ":1 is \"item?query\"; expected \"query?item\", as in " + path_.string());
}

}  // namespace
}  // namespace trireme::dataset
