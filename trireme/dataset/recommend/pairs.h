// Pairs of a query and an item that belong together, such as a user and what the user bought.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/raw_data.h"

namespace trireme::dataset::inline internal {

// Lines of columns separated by tabs. The first line names them: `query` and `item`, with features
// besides such as `query.country` and `item.tags*`. A column whose name ends in * has any number of
// values, up to 64, separated by |; the name's * is dropped. The first column of items says which
// item it is; its other features are taken from the first line that has it. Several files have the
// same first line.
std::unique_ptr<RawData> open_pairs(const std::vector<std::string>& paths);

}  // namespace trireme::dataset::inline internal
