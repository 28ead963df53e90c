// Rows for a recommendation model in the raw form from which its training data was prepared.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "trireme/dataset/recommend/feature_schema.h"
#include "trireme/dataset/recommend/prepare_features.h"
#include "trireme/dataset/rows/row_source.h"

namespace trireme::dataset {

struct FeatureRowOptions {
  RawFormat format = RawFormat::kCriteo;
  // The prepared folder of the training data, whose dictionary gives categories their rows. Not
  // read when ids are hashes.
  std::filesystem::path folder{};
};

// The format of the training data, told from its schema: RawFormat::kCsv if it has the columns of a
// table, kCriteo for Criteo's names, kPairs for items without numbers.
// Throws: ConfigError when they do not tell it
RawFormat format_of(const FeatureSchema& schema);

// A row has the tensors of FeatureSource but "label" and "item". Of data of pairs a row is a query
// and an item, whose features are those of the row. A category that training lacks has row 0. Of
// lists of ids that are longer than in training, the first are taken.
// schema: of the training data
// Memory: the dictionary
// Throws: ConfigError with the path when an input cannot be opened or has other features, or when
//         the dictionary is missing or is of other data
std::unique_ptr<RowSource> open_feature_rows(std::span<const std::string> inputs,
                                             const FeatureSchema& schema,
                                             const FeatureRowOptions& options);

}  // namespace trireme::dataset
