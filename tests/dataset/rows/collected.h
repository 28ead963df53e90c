// All rows of a source, for tests that look at them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/dataset/rows/row_source.h"

namespace trireme::dataset {

inline std::vector<Row> collected(RowSource& source) {
  std::vector<Row> rows;
  source.read([&rows](Row row) { rows.push_back(std::move(row)); });
  return rows;
}

inline at::Tensor tensor_of(const Row& row, const std::string& name) {
  return find_tensor(row.sample, name);
}

}  // namespace trireme::dataset
