// CSV tables through preparation to records, and rows to predict from the same schema.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "tests/dataset/rows/collected.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/recommend/criteo_generator.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/dataset/recommend/prepare_features.h"
#include "trireme/dataset/rows/feature_rows.h"

namespace trireme::dataset {
namespace {

class PrepareCsv : public ::testing::Test {
 protected:
  std::string put(const std::string& text, const std::string& name = "in.csv") {
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }
  PrepareFeaturesOptions options(const std::string& input, const std::string& output = "out") {
    return {.format = RawFormat::kCsv,
            .inputs = {input},
            .columns = {.numeric = {"a:standard", "b"}, .category = {"c"}, .label = "y"},
            .output = (folder_ / output).string()};
  }
  std::vector<Row> rows_of(const std::string& path, const std::string& folder = "out") {
    const std::vector<std::string> paths = {path};
    const FeatureSchema schema = read_schema(folder_ / folder);
    return collected(*open_feature_rows(paths, schema,
                                        {.format = format_of(schema), .folder = folder_ / folder}));
  }
  float dense_of(const FeatureData& data, int64_t sample, int64_t column) {
    return find_tensor(data.training->get(sample), "dense")[column].item<float>();
  }

  harness::TemporaryFolder folder_;
};

// Criteo's rows as CSV.
std::string csv_of_criteo(const std::string& text) {
  std::string csv = "label";
  for (int d = 1; d <= 13; ++d) csv += concat(",I", d);
  for (int t = 1; t <= 26; ++t) csv += concat(",C", t);
  csv += '\n';
  for (const char c : text) csv += c == '\t' ? ',' : c;
  return csv;
}

TEST_F(PrepareCsv, CriteosRowsHaveTheBytesOfTheirOwnFormat) {
  const std::string text = folder_ / "day.tsv";
  generate_criteo({.num_samples = 300, .scale = 1e-4, .output = text});
  PrepareFeaturesOptions own{.inputs = {text},
                             .output = (folder_ / "own").string(),
                             .min_count = 2,
                             .validation_fraction = 0.2};
  PrepareFeaturesOptions csv = own;
  csv.format = RawFormat::kCsv;
  csv.inputs = {put(csv_of_criteo(read_file(text)))};
  csv.output = (folder_ / "csv").string();
  csv.columns = {.numeric = {"I*"}, .category = {"C*"}, .label = "label"};
  const PrepareFeaturesReport first = prepare_features(own), second = prepare_features(csv);
  EXPECT_GT(first.schema.num_validation, 0);
  EXPECT_EQ(first.num_rare_ids, second.num_rare_ids);
  for (const char* const name : {kTrainingFile, kValidationFile, kDictionaryFile}) {
    EXPECT_EQ(read_file(folder_ / "own" / name), read_file(folder_ / "csv" / name)) << name;
  }
}

TEST_F(PrepareCsv, StatisticsAreOfTheTrainingSamplesAlone) {
  std::string text = "a,b,c,y\n";
  double sum = 0, squares = 0;
  int count = 0;
  const RandomKey key = random_key(3, "validation");
  for (uint64_t i = 0; i < 200; ++i) {
    const bool is_validation = random_uniform(key, i) < 0.25;
    const double a = is_validation ? 1e6 : static_cast<double>(i);
    text += concat(a, ",0,x,", i % 2, "\n");
    if (is_validation) continue;
    sum += a;
    squares += a * a;
    ++count;
  }
  PrepareFeaturesOptions with = options(put(text));
  with.validation_fraction = 0.25;
  with.seed = 3;
  const CsvForm form = prepare_features(with).schema.csv.value();
  const double mean = sum / count;
  EXPECT_NEAR(form.numbers[0].mean, mean, 1e-9);
  EXPECT_NEAR(form.numbers[0].deviation, std::sqrt(squares / count - mean * mean), 1e-9);
  const FeatureData data = open_features(folder_ / "out");
  double total = 0;
  for (int64_t i = 0; i < data.training->size(); ++i) total += dense_of(data, i, 0);
  EXPECT_NEAR(total / count, 0, 1e-5);
}

TEST_F(PrepareCsv, TheMeanStandsForMissingNumbers) {
  PrepareFeaturesOptions mean = options(put("a,b,c,y\n1,3,x,0\n3,,x,1\n,5,x,1\n"));
  mean.columns.missing = MissingNumbers::kMean;
  prepare_features(mean);
  const FeatureData data = open_features(folder_ / "out");
  EXPECT_EQ(data.schema.csv->numbers[1].mean, 4);
  EXPECT_EQ(dense_of(data, 0, 0), -1);
  EXPECT_EQ(dense_of(data, 2, 0), 0);
  EXPECT_FLOAT_EQ(dense_of(data, 1, 1), std::log1p(4.0F));
}

TEST_F(PrepareCsv, RowsToPredictAreReadAsTheTrainingSamples) {
  const std::string text = "a,b,c,y\n1,10,red,0\n2,20,blue,1\n4,,red,1\n,7,,0\n";
  const std::string unlabelled = put("c,b,a\nred,10,1\nblue,20,2\nred,,4\n,7,\n", "rows.csv");
  for (const CategoryIds ids : {CategoryIds::kRows, CategoryIds::kHash}) {
    const std::string output = name_of(kCategoryIds, ids);
    PrepareFeaturesOptions given = options(put(text), output);
    given.ids = ids;
    prepare_features(given);
    const FeatureData data = open_features(folder_ / output);
    const std::vector<Row> rows = rows_of(unlabelled, output);
    ASSERT_EQ(rows.size(), 4U);
    for (int64_t i = 0; i < 4; ++i) {
      for (const char* const name : {"dense", "ids", "lengths"}) {
        harness::assert_same_bits(tensor_of(rows[static_cast<size_t>(i)], name),
                                  find_tensor(data.training->get(i), name), name);
      }
    }
  }
}

TEST_F(PrepareCsv, NewDataTakeTheColumnsAndStatisticsOfADictionary) {
  prepare_features(options(put("a,b,c,y\n1,10,red,0\n3,20,blue,1\n")));
  for (const CategoryIds ids : {CategoryIds::kRows, CategoryIds::kHash}) {
    const std::string old = concat("old-", name_of(kCategoryIds, ids));
    PrepareFeaturesOptions first = options(folder_ / "in.csv", old);
    first.ids = ids;
    prepare_features(first);
    const PrepareFeaturesOptions more{.format = RawFormat::kCsv,
                                      .inputs = {put("y,c,b,a\n1,red,5,9\n", "new.csv")},
                                      .output = (folder_ / (old + "-new")).string(),
                                      .dictionary = (folder_ / old).string()};
    const FeatureSchema schema = prepare_features(more).schema;
    const FeatureData data = open_features(folder_ / old), fresh = open_features(more.output);
    EXPECT_EQ(schema.csv, data.schema.csv);
    EXPECT_EQ(dense_of(fresh, 0, 0), 7);  // (9 - 2) / 1
    harness::assert_same_bits(find_tensor(fresh.training->get(0), "ids"),
                              find_tensor(data.training->get(0), "ids"), "red");
  }
  const std::string day = folder_ / "day.tsv";
  generate_criteo({.num_samples = 9, .scale = 1e-4, .output = day});
  prepare_features({.inputs = {day}, .output = (folder_ / "clicks").string()});
  PrepareFeaturesOptions foreign = options(folder_ / "in.csv", "none");
  foreign.dictionary = (folder_ / "clicks").string();
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              prepare_features(foreign);
            }).find("was not prepared from CSV"),
            std::string::npos);
}

TEST_F(PrepareCsv, AnotherSchemaIsRefusedAtPrediction) {
  prepare_features(options(put("a,b,c,y\n1,10,red,0\n3,20,blue,1\n")));
  const auto refusal = [&](const std::string& text) {
    const std::string path = put(text, "rows.csv");
    return harness::message_of<ConfigError>([&] { rows_of(path); });
  };
  EXPECT_NE(refusal("a,b,c,d\n1,2,red,4\n").find("rows.csv:1: column 4 (d) is unknown"),
            std::string::npos);
  EXPECT_NE(refusal("a,b\n1,2\n").find("rows.csv:1 has no column \"c\" (category)"),
            std::string::npos);
  EXPECT_NE(refusal("a,b,c\n1,2,red\n1,x,red\n").find("rows.csv:3: column 2 (b) is \"x\""),
            std::string::npos);
}

TEST_F(PrepareCsv, NothingAppearsForInputThatIsWrong) {
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              prepare_features(options(put("a,b,c,y\n1,10,red,0\n3,20,blue,2\n")));
            }).find("in.csv:3: column 4 (y) is \"2\""),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              prepare_features(options(put("a,b,c,y\n")));
            }).find("no sample is for training"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
