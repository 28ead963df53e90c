#include "trireme/dataset/recommend/feature_schema.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/dataset/recommend/features.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"

namespace trireme::dataset {
namespace {

TEST(FeatureSchema, SurvivesItsFile) {
  FeatureSchema classes = click_schema();
  classes.label = LabelKind::kClass;
  classes.classes = {"admin", "libs"};
  classes.num_validation = 7;
  classes.min_count = 10;
  for (const FeatureSchema& schema : {click_schema(), pair_schema(), classes, csv_features()}) {
    const harness::TemporaryFolder folder;
    write_file_atomically(folder / kSchemaFile, to_json(schema));
    EXPECT_EQ(read_schema(folder.path()), schema);
  }
}

TEST(FeatureSchema, HashesOfACsvTableSurviveTheFile) {
  FeatureSchema schema = csv_features();
  schema.tables[0] = {.name = "city", .is_hashed = true};
  schema.min_count = 0;
  const harness::TemporaryFolder folder;
  write_file_atomically(folder / kSchemaFile, to_json(schema));
  EXPECT_EQ(read_schema(folder.path()), schema);
}

TEST(FeatureSchema, CountsTablesAndIdsOfEachSide) {
  const FeatureSchema schema = pair_schema();
  EXPECT_EQ(schema.num_tables(TableSide::kQuery), 1);
  EXPECT_EQ(schema.num_tables(TableSide::kItem), 2);
  EXPECT_EQ(schema.num_ids(TableSide::kItem), 3);
  EXPECT_EQ(schema.num_ids(), 4);
}

// Reads the schema's file with `from` replaced by `to`.
std::string error_with(const FeatureSchema& schema, const std::string& from,
                       const std::string& to) {
  const harness::TemporaryFolder folder;
  std::string text = to_json(schema);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  write_file_atomically(folder / kSchemaFile, text);
  const std::string message = harness::message_of<ConfigError>([&] { read_schema(folder.path()); });
  const std::string path = (folder / kSchemaFile).string();
  EXPECT_EQ(message.substr(0, path.size()), path);
  return message.substr(std::min(message.size(), path.size()));
}

TEST(FeatureSchema, RefusesColumnsOfACsvTableThatDisagree) {
  const FeatureSchema csv = csv_features();
  EXPECT_EQ(error_with(csv, "\"tab\"", "\"space\""),
            ": csv.separator is \"space\"; expected comma, tab, semicolon or bar");
  EXPECT_EQ(error_with(csv, "\"standard\"", "\"cube\""),
            ": csv.numbers[0].transform is \"cube\"; expected none, log or standard");
  EXPECT_NE(error_with(csv, "\"deviation\": 0.1", "\"deviation\": 0")
                .find(": csv.numbers[0].deviation is 0"),
            std::string::npos);
  EXPECT_NE(error_with(csv, "\"mean\": 41.5", "\"mean\": \"x\"").find("csv.numbers[0].mean"),
            std::string::npos);
  EXPECT_EQ(error_with(csv, "\"clicked\"", "\"age\""),
            ": column \"age\" occurs twice; expected different names");
  EXPECT_NE(error_with(csv, "\"dense\": [\n  \"age\"\n ]", "\"dense\": []")
                .find(": csv has 1 numbers; expected 0, one for each dense feature"),
            std::string::npos);
  EXPECT_NE(error_with(csv, "\"binary\"", "\"none\"").find("csv is of samples without a label"),
            std::string::npos);
}

TEST(FeatureSchema, RefusesWhatIsNotOneInOneLine) {
  const FeatureSchema clicks = click_schema();
  EXPECT_EQ(error_with(clicks, "trireme-features", "x"),
            ": format is \"x\"; expected \"trireme-features\"");
  EXPECT_EQ(error_with(clicks, "\"version\": 1", "\"version\": 4"),
            ": version is 4; expected a whole number from 1 to 3");
  EXPECT_EQ(error_with(clicks, "\"rows\": 5", "\"rows\": 0"),
            ": tables[0].rows is 0; expected a whole number from 1 to 4294967296");
  EXPECT_EQ(error_with(clicks, "\"max_ids\": 3", "\"max_ids\": 65536"),
            ": tables[1].max_ids is 65536; expected a whole number from 1 to 65535");
  EXPECT_EQ(error_with(clicks, "\"min_ids\": 0", "\"min_ids\": 4"),
            ": table \"words\": min_ids is 4; expected 0 to 3");
  EXPECT_EQ(error_with(clicks, "\"side\": \"query\"", "\"side\": \"both\""),
            ": tables[0].side is \"both\"; expected query or item");
  EXPECT_EQ(error_with(clicks, "\"binary\"", "\"class\""),
            ": the number of classes is 0; expected 1 to 67108864");
  EXPECT_EQ(error_with(clicks, "\"price\"", "\"age\""),
            ": dense feature \"age\" occurs twice; expected different names");
  EXPECT_EQ(error_with(clicks, "\"words\"", "\"user\""),
            ": table \"user\" occurs twice; expected different names");
  EXPECT_EQ(error_with(clicks, "\"training_samples\": 2", "\"training_samples\": 0"),
            ": training_samples is 0; expected a whole number from 1 to 1099511627776");
  EXPECT_EQ(error_with(clicks, "\"items\": 0", "\"items\": 3"),
            " has 3 items and 0 tables of items; expected both or neither");
  FeatureSchema mixed = pair_schema();
  std::swap(mixed.tables[0], mixed.tables[2]);
  EXPECT_EQ(harness::message_of<ConfigError>([&] { check_schema(mixed, "it"); }),
            "it has a table of queries after one of items; expected those of items last");
}

TEST(FeatureSchema, OfHashesHasAnotherVersion) {
  FeatureSchema clicks = click_schema();
  clicks.tables[1].is_hashed = true;
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              check_schema(clicks, "it");
            }).find("rows is 100; expected 0 to 0"),
            std::string::npos);
  clicks.tables[1].rows = 0;
  const harness::TemporaryFolder folder;
  write_file_atomically(folder / kSchemaFile, to_json(clicks));
  EXPECT_EQ(read_schema(folder.path()), clicks);
  EXPECT_TRUE(clicks.has_hashes());
  EXPECT_FALSE(click_schema().has_hashes());
  EXPECT_EQ(error_with(clicks, "\"ids\": \"hash\"", "\"ids\": \"hush\""),
            ": tables[1].ids is \"hush\"; expected rows or hash");
  EXPECT_NE(error_with(clicks, "\"version\": 2", "\"version\": 1"), "") << "no rows";
  EXPECT_NE(error_with(click_schema(), "\"version\": 1", "\"version\": 2"), "") << "no ids";
}

TEST(FeatureSchema, HasNamesThatCanBeWritten) {
  FeatureSchema schema = click_schema();
  schema.dense[0] = "\xb1";
  const std::string message = harness::message_of<ConfigError>([&] { check_schema(schema, "it"); });
  EXPECT_NE(message.find("not UTF-8"), std::string::npos) << message;
}

TEST(FeatureSchema, SaysHowToMakeAMissingOne) {
  const harness::TemporaryFolder folder;
  const std::string message = harness::message_of<ConfigError>([&] { read_schema(folder.path()); });
  EXPECT_NE(message.find("features.json: No such file or directory; prepare it with trireme data "
                         "prepare --format"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace trireme::dataset
