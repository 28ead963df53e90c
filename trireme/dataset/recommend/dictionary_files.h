// The texts of categories and items in a prepared folder (docs/recommend-data.md).
#pragma once

#include <filesystem>
#include <vector>

#include "trireme/dataset/recommend/dictionary.h"
#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset::inline internal {

// dictionary.txt: for each table in turn a line for each row from 1 on.
// Throws: ConfigError for a category that ends in a carriage return
void write_dictionaries(const std::filesystem::path& path,
                        const std::vector<Dictionary>& dictionaries);
// Throws: ConfigError with the path when there are more or fewer lines than rows, or one twice
std::vector<Dictionary> read_dictionaries(const std::filesystem::path& path,
                                          const FeatureSchema& schema);

// items.txt: line i + 1 is the name of item i. Throws as above.
void write_item_names(const std::filesystem::path& path, const TextNumbers& names);
TextNumbers read_item_names(const std::filesystem::path& path, int64_t num_items);

}  // namespace trireme::dataset::inline internal
