#include "trireme/dataset/rows/feature_rows.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/dataset/rows/collected.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/criteo_generator.h"
#include "trireme/dataset/recommend/feature_source.h"

namespace trireme::dataset {
namespace {

// Generated clicks, prepared. Training samples keep the order of the text.
class FeatureRowsTest : public ::testing::Test {
 protected:
  FeatureRowsTest() {
    generate_criteo({.num_samples = 40, .scale = 1e-4, .output = text_});
    prepare("rows", CategoryIds::kRows);
  }
  void prepare(const std::string& name, CategoryIds ids) {
    prepare_features(
        {.inputs = {text_}, .output = (folder_ / name).string(), .ids = ids, .min_count = 1});
  }
  std::string without_labels() {
    const std::string path = folder_ / "unlabelled.tsv";
    std::string rows, text = read_file(text_);
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at) + 1;
      rows += text.substr(at + 2, end - at - 2);
      at = end;
    }
    write_file_atomically(path, rows);
    return path;
  }
  std::vector<Row> read(const std::string& path, const std::string& folder) {
    const std::vector<std::string> paths = {path};
    const auto rows =
        open_feature_rows(paths, read_schema(folder_ / folder), {.folder = folder_ / folder});
    std::vector<Row> all = collected(*rows);
    EXPECT_EQ(rows->num_done(), rows->num_total());
    return all;
  }

  harness::TemporaryFolder folder_;
  std::string text_ = folder_ / "day.tsv";
};

TEST_F(FeatureRowsTest, RowsAreTheTrainingSamplesWithOrWithoutTheLabel) {
  prepare("hash", CategoryIds::kHash);
  for (const char* const folder : {"rows", "hash"}) {
    const FeatureData data = open_features(folder_ / folder);
    for (const std::string& path : {text_, without_labels()}) {
      const std::vector<Row> rows = read(path, folder);
      ASSERT_EQ(std::ssize(rows), data.training->size());
      for (int64_t i = 0; i < std::ssize(rows); ++i) {
        const Row& row = rows[static_cast<size_t>(i)];
        EXPECT_EQ(row.number, i + 1);
        const NamedTensors sample = data.training->get(i);
        for (const char* const name : {"dense", "ids", "lengths"}) {
          harness::assert_same_bits(tensor_of(row, name), find_tensor(sample, name), name);
        }
        EXPECT_FALSE(tensor_of(row, "label").defined());
      }
    }
  }
}

TEST_F(FeatureRowsTest, ACategoryThatTrainingLacksHasRow0) {
  const std::string path = without_labels();
  std::string line = read_file(path);
  line = line.substr(0, line.find('\n'));
  write_file_atomically(path, line.substr(0, line.rfind('\t')) + "\tffffffffff\n");
  const std::vector<Row> rows = read(path, "rows");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(tensor_of(rows[0], "ids")[25].item<int64_t>(), 0);
}

TEST_F(FeatureRowsTest, RowsOfPairsHaveTheIdsOfTheQueryAndThenOfTheItem) {
  const std::string path = folder_ / "pairs.tsv";
  write_file_atomically(path, "query*\titem\titem.tags*\na|b\tx\tt\n\tx\tt\nb\ty\tt|u\n");
  prepare_features({.format = RawFormat::kPairs,
                    .inputs = {path},
                    .output = (folder_ / "pairs").string(),
                    .min_count = 1});
  const FeatureSchema schema = read_schema(folder_ / "pairs");
  EXPECT_EQ(format_of(schema), RawFormat::kPairs);
  const std::vector<std::string> paths = {path};
  const std::vector<Row> rows = collected(*open_feature_rows(
      paths, schema, {.format = RawFormat::kPairs, .folder = folder_ / "pairs"}));
  const FeatureData data = open_features(folder_ / "pairs");
  ASSERT_EQ(std::ssize(rows), data.training->size());
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    const NamedTensors sample = data.training->get(i);
    for (const char* const name : {"ids", "lengths"})
      harness::assert_same_bits(tensor_of(row, name), find_tensor(sample, name), name);
    EXPECT_FALSE(tensor_of(row, "item").defined());
  }
}

TEST_F(FeatureRowsTest, TellsWhatDoesNotFit) {
  const FeatureSchema schema = read_schema(folder_ / "rows");
  const auto refuse = [&](const std::string& path, const FeatureSchema& of_model,
                          const FeatureRowOptions& options) {
    const std::vector<std::string> paths = {path};
    return harness::message_of<ConfigError>(
        [&] { collected(*open_feature_rows(paths, of_model, options)); });
  };
  const FeatureRowOptions options{.folder = folder_ / "rows"};
  EXPECT_NE(refuse(text_, schema, {.folder = folder_.path()}).find("no dictionary.txt"),
            std::string::npos);
  FeatureSchema other = schema;
  other.tables[3].rows += 1;
  EXPECT_NE(refuse(text_, other, options).find("numbers of rows"), std::string::npos);
  other = schema;
  other.dense.back() = "price";
  const std::string message = refuse(text_, other, options);
  EXPECT_NE(message.find("day.tsv"), std::string::npos) << message;
  EXPECT_NE(message.find("\"price\""), std::string::npos) << message;
  EXPECT_NE(harness::message_of<ConfigError>([&] { format_of(other); }).find("--input-format"),
            std::string::npos);
  EXPECT_EQ(format_of(schema), RawFormat::kCriteo);
  write_file_atomically(folder_ / "short.tsv", "1\t2\t3\n");
  const std::string place = refuse(folder_ / "short.tsv", schema, options);
  EXPECT_NE(place.find("short.tsv:1 has 3 columns"), std::string::npos) << place;
  EXPECT_NE(place.find("or 39, without the label"), std::string::npos) << place;
}

}  // namespace
}  // namespace trireme::dataset
