#include "trireme/dataset/recommend/csv_columns.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/harness/messages.h"
#include "trireme/base/error.h"

namespace trireme::dataset {
namespace {

using Strings = std::vector<std::string>;

const Strings kAdHeader = {"id", "clicked", "age", "price_old", "city", "price_new"};

CsvColumns ad_columns() {
  return {.numeric = {"age:standard", "price_*"},
          .category = {"city"},
          .drop = {"id"},
          .label = "clicked"};
}

std::string columns_refusal(const CsvColumns& columns, const Strings& header = kAdHeader) {
  return harness::message_of<ConfigError>([&] { csv_schema(columns, header, "ads.csv"); });
}

TEST(CsvColumns, NamesAndPatternsSayWhatColumnsAre) {
  const FeatureSchema schema = csv_schema(ad_columns(), kAdHeader, "ads.csv");
  EXPECT_EQ(schema.dense, (Strings{"age", "price_old", "price_new"}));
  ASSERT_EQ(schema.tables.size(), 1U);
  EXPECT_EQ(schema.tables[0].name, "city");
  EXPECT_EQ(schema.label, LabelKind::kBinary);
  ASSERT_TRUE(schema.csv);
  EXPECT_EQ(schema.csv->label, "clicked");
  EXPECT_EQ(schema.csv->dropped, Strings{"id"});
  EXPECT_EQ(schema.csv->numbers[0].transform, NumberTransform::kStandard);
  EXPECT_EQ(schema.csv->numbers[1].transform, NumberTransform::kLog);
}

TEST(CsvColumns, ANameWinsOverPatterns) {
  CsvColumns columns = ad_columns();
  columns.drop.emplace_back("price_old");
  columns.category = {"c*"};
  const FeatureSchema schema = csv_schema(columns, kAdHeader, "ads.csv");
  EXPECT_EQ(schema.dense, (Strings{"age", "price_new"}));
  EXPECT_EQ(schema.csv->dropped, (Strings{"id", "price_old"}));
  EXPECT_EQ(schema.tables.size(), 1U) << "clicked is the label";
}

TEST(CsvColumns, AColonIsPartOfANameUnlessATransformFollows) {
  CsvColumns columns = ad_columns();
  columns.numeric = {"a:b", "a:none"};
  columns.category = columns.drop = {};
  const FeatureSchema schema = csv_schema(columns, {"a:b", "a", "clicked"}, "ads.csv");
  EXPECT_EQ(schema.dense, (Strings{"a:b", "a"}));
  EXPECT_EQ(schema.csv->numbers[1].transform, NumberTransform::kNone);
}

TEST(CsvColumns, WhatDoesNotFitIsRefusedWithTheColumn) {
  CsvColumns columns = ad_columns();
  columns.drop = {};
  EXPECT_EQ(columns_refusal(columns),
            "ads.csv:1: column 1 (id) is in no list; expected it in --numeric, --category, --label "
            "or --drop");
  columns = ad_columns();
  columns.category = {"citi"};
  EXPECT_EQ(columns_refusal(columns),
            "ads.csv:1 has no column for --category citi; did you mean \"city\"?; expected one of "
            "id, clicked, age, price_old, city, price_new");
  columns = ad_columns();
  columns.drop.emplace_back("*_old");
  EXPECT_EQ(columns_refusal(columns),
            "ads.csv:1: column 4 (price_old) is both --numeric price_* and --drop *_old; expected "
            "one: write its name into the one list that it is for");
  columns = ad_columns();
  columns.drop.emplace_back("age");
  EXPECT_EQ(columns_refusal(columns),
            "ads.csv:1: column 3 (age) is both --numeric age and --drop age; expected one: write "
            "its name into the one list that it is for");
  columns.label = "";
  EXPECT_EQ(columns_refusal(columns), "no column is the label; name it with --label");
  columns = ad_columns();
  columns.label = "click*";
  EXPECT_NE(columns_refusal(columns).find("no column for --label click*"), std::string::npos);
}

TEST(CsvColumns, AFirstLineThatNamesNoColumnsIsRefused) {
  EXPECT_NE(columns_refusal(ad_columns(), {"clicked", ""}).find("column 2 is named \"\""),
            std::string::npos);
  EXPECT_NE(columns_refusal(ad_columns(), {"clicked", "a\nb"}).find("column 2 is named \"a?b\""),
            std::string::npos);
  EXPECT_NE(
      columns_refusal(ad_columns(), {"age", "age"}).find("column 2 is the second named \"age\""),
      std::string::npos);
}

}  // namespace
}  // namespace trireme::dataset
