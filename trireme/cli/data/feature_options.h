// The options of `trireme data prepare` for tables of features.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/dataset/recommend/prepare_features.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trireme::cli {

inline constexpr const char* kCsvFormat = "csv";

struct FeatureArguments {
  dataset::PrepareFeaturesOptions options{};
  // As typed.
  std::string ids = name_of(dataset::kCategoryIds, dataset::CategoryIds::kRows);
  std::vector<std::string> numeric{}, category{}, drop{}, missing_texts{};
  std::string label_kind = name_of(dataset::kLabelKinds, dataset::LabelKind::kBinary);
  std::string transform = name_of(dataset::kNumberTransforms, dataset::NumberTransform::kLog);
  std::string missing = name_of(dataset::kMissingNumbers, dataset::MissingNumbers::kZero);
  std::string separator = name_of(dataset::kSeparators, ',');

  std::vector<CLI::Option*> all{};
  std::vector<CLI::Option*> only_csv{};
};

void add_feature_options(CLI::App& command, FeatureArguments& arguments);

// Fills the options from what was typed.
// Throws: ConfigError for one that --dictionary decides
void take_feature_options(FeatureArguments& arguments);

}  // namespace trireme::cli
