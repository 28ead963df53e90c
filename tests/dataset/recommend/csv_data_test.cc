#include "trireme/dataset/recommend/csv_data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/dataset/recommend/raw_recorder.h"
#include "tests/harness/messages.h"
#include "tests/harness/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/csv_columns.h"

namespace trireme::dataset {
namespace {

using Strings = std::vector<std::string>;

class CsvDataTest : public ::testing::Test {
 protected:
  std::string put(const std::string& text, const std::string& name = "ads.csv") {
    write_file_atomically(folder_ / name, text);
    return (folder_ / name).string();
  }
  FeatureSchema schema() const {
    return csv_schema(columns_, {"y", "age", "city", "id"}, "the first file");
  }
  RawRecorder read(const Strings& paths, Labels labels = Labels::kRequired) {
    RawRecorder recorder;
    open_csv(paths, schema(), labels)->read(recorder);
    return recorder;
  }
  std::string refusal(const std::string& text, Labels labels = Labels::kRequired) {
    const std::string path = put(text);
    const std::string message = harness::message_of<ConfigError>([&] { read({path}, labels); });
    return message.substr(std::min(message.size(), path.size()));
  }

  harness::TemporaryFolder folder_;
  CsvColumns columns_{.numeric = {"age"},
                      .category = {"city"},
                      .drop = {"id"},
                      .label = "y",
                      .transform = NumberTransform::kNone,
                      .missing_texts = {"NA"}};
};

TEST_F(CsvDataTest, ColumnsMayHaveAnotherOrderInEachFile) {
  const std::string one = put("y,age,city,id\n1,2.5,\"Bonn, Rhein\",7\n0,-3,,8\n");
  const std::string two = put("city,id,y,age\nKiel,9,1,1e3\n", "two.csv");
  const RawRecorder found = read({one, two});
  EXPECT_EQ(found.samples, (Strings{":Bonn, Rhein", ":", ":Kiel"}));
  EXPECT_EQ(found.dense, (std::vector<std::vector<float>>{{2.5F}, {-3}, {1000}}));
  EXPECT_EQ(found.labels, (std::vector<double>{1, 0, 1}));
  EXPECT_EQ(found.groups, (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(found.num_bytes, open_csv({one, two}, schema())->num_bytes());
}

TEST_F(CsvDataTest, WhatIsMissingFollowsTheRule) {
  const std::string path = put("y,age,city,id\n1,,NA,\n1,NA,Bonn,\n");
  const RawRecorder zero = read({path});
  EXPECT_EQ(zero.dense, (std::vector<std::vector<float>>{{0}, {0}}));
  EXPECT_EQ(zero.samples, (Strings{":", ":Bonn"}));
  FeatureSchema known = schema();
  known.csv->missing = MissingNumbers::kMean;
  known.csv->numbers[0].mean = 40;
  RawRecorder mean;
  open_csv({path}, known)->read(mean);
  EXPECT_EQ(mean.dense, (std::vector<std::vector<float>>{{40}, {40}}));
  columns_.missing = MissingNumbers::kRefuse;
  EXPECT_EQ(refusal("y,age,city,id\n1,2,Bonn,7\n1,NA,Bonn,7\n").substr(0, 32),
            ":3: column 2 (age) is missing, a");
  EXPECT_EQ(refusal("y,age,city,id\n1,2,,7\n").substr(0, 33), ":2: column 3 (city) is missing, a");
}

TEST_F(CsvDataTest, RowsToPredictMayLackTheLabelAndDroppedColumns) {
  const std::string path = put("city,age\nBonn,1\n");
  EXPECT_EQ(read({path}, Labels::kOptional).samples, Strings{":Bonn"});
  EXPECT_EQ(read({put("y,city,age\nwhatever,Bonn,1\n")}, Labels::kOptional).samples,
            Strings{":Bonn"});
  EXPECT_EQ(refusal("city,age\nBonn,1\n"),
            ":1 has no column \"y\" (label); expected all columns of the training data");
}

TEST_F(CsvDataTest, WrongTablesAreRefusedWithRowAndColumn) {
  EXPECT_EQ(refusal("y,age,city,id\n1,2,Bonn,7\n1,old,Bonn,7\n"),
            ":3: column 2 (age) is \"old\"; expected a finite number, or a text that "
            "--missing-text says is missing");
  for (const char* const wrong : {"nan", "inf", "1e39", "0x3", " 1", "1,"}) {
    EXPECT_NE(refusal(concat("y,age,city,id\n1,\"", wrong, "\",Bonn,7\n"))
                  .find(concat("column 2 (age) is \"", wrong, "\"")),
              std::string::npos)
        << wrong;
  }
  EXPECT_EQ(refusal("y,age,id\n"),
            ":1 has no column \"city\" (category); expected all columns of the training data");
  EXPECT_EQ(refusal("y,city,id\n"),
            ":1 has no column \"age\" (numeric); expected all columns of the training data");
  EXPECT_EQ(refusal("y,age,city,id,zip\n"),
            ":1: column 5 (zip) is unknown; expected the columns of the training data and no "
            "others");
  EXPECT_EQ(refusal("y,age,city,id,age\n"),
            ":1: column 5 is the second named \"age\"; expected different names");
  EXPECT_EQ(refusal("y,age,city,id\n1,2,Bonn\n"),
            ":2 has 3 cells; expected 4, as in its first line");
  EXPECT_EQ(refusal("y,age,city,id\nyes,2,Bonn,7\n"),
            ":2: column 1 (y) is \"yes\"; expected the label, 0 or 1; of other labels use "
            "--label-kind class");
  EXPECT_EQ(refusal("y,age,city,id\n1,2,\"a\nb\",7\n"),
            ":2: column 3 (city) is \"a?b\", with a line break; expected a category on one line");
  EXPECT_EQ(refusal("y,age,city,id\n1,2," + std::string(5000, 'x') + ",7\n"),
            ":2: column 3 (city) has 5000 bytes; expected at most 4096");
}

TEST_F(CsvDataTest, ANumberThatItsTransformMakesInfiniteIsRefused) {
  FeatureSchema known = schema();
  known.csv->numbers[0] = {.transform = NumberTransform::kStandard, .deviation = 1e-30};
  const std::string path = put("y,age,city,id\n1,1e10,Bonn,7\n");
  RawRecorder recorder;
  EXPECT_NE(harness::message_of<ConfigError>([&] {
              open_csv({path}, known)->read(recorder);
            }).find(":2: column 2 (age) is \"1e10\", too far from the mean 0"),
            std::string::npos);
}

TEST_F(CsvDataTest, ClassesHaveAnyNames) {
  columns_.label_kind = LabelKind::kClass;
  EXPECT_EQ(read({put("y,age,city,id\ndog,2,Bonn,7\n")}).samples, Strings{"dog:Bonn"});
  EXPECT_NE(refusal("y,age,city,id\n,2,Bonn,7\n").find("column 1 (y) is \"\", which is empty"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
