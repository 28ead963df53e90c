// What the user says of the columns of a CSV table, and the features that follow from it.
#pragma once

#include <string>
#include <vector>

#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset {

// Names of columns, or patterns of them (base/patterns.h). A name wins over patterns.
struct CsvColumns {
  std::vector<std::string> numeric{};  // also with a transform of their own: "age:standard"
  std::vector<std::string> category{};
  std::vector<std::string> drop{};
  std::string label{};  // a name
  LabelKind label_kind = LabelKind::kBinary;
  NumberTransform transform = NumberTransform::kLog;  // where `numeric` states none
  MissingNumbers missing = MissingNumbers::kZero;
  std::vector<std::string> missing_texts{};
  char separator = ',';
};

// The features of a table with this line of column names, in the order of the columns. Its label is
// one of the kinds kBinary and kClass. Statistics, rows, classes and counts are not known yet.
// path: for messages
// Throws: ConfigError with the path and the column for one that no list names, that two lists name,
//         or that is not there
FeatureSchema csv_schema(const CsvColumns& columns, const std::vector<std::string>& header,
                         const std::string& path);

}  // namespace trireme::dataset
