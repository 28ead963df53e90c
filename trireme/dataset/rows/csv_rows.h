// Rows of CSV and TSV files with the columns of a table, without the one to predict.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "trireme/dataset/csv_source.h"
#include "trireme/dataset/rows/row_source.h"

namespace trireme::dataset {

// Each file begins with a line of column names, in any order. Columns that `like` does not have,
// and its target, are ignored. A row has the tensors of CsvSource but "y". Files may be compressed.
// like: the table that the model was trained on; must outlive the rows
// Throws: ConfigError with the path when a file is missing or lacks a column
std::unique_ptr<RowSource> open_csv_rows(std::span<const std::string> paths, const CsvSource& like);

}  // namespace trireme::dataset
