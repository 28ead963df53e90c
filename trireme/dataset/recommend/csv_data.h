// CSV tables of any columns, which are read as a schema says.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/raw_data.h"

namespace trireme::dataset {

// The names of the columns.
// Throws: ConfigError with the path when there are none
std::vector<std::string> csv_header(const std::string& path, char separator);

// Rows of the tables, which have a line of column names first. Columns may be in any order, in each
// file another. A missing category is a category of its own, "".
// schema: has csv, of csv_schema() or of a prepared folder. A sample's dense features have the
//         transforms with the statistics that csv has; numbers are those before them.
// labels: kOptional: the columns of the label and dropped ones may be absent
// Throws: ConfigError with the file and the column when one is missing or is not in the schema
std::unique_ptr<RawData> open_csv(const std::vector<std::string>& paths,
                                  const FeatureSchema& schema, Labels labels = Labels::kRequired);

}  // namespace trireme::dataset
