// The schema of a recommendation data set's samples: numbers, ids of categories, a label. Describes
// a prepared folder (docs/guide/recommend-data.md), whose features.json it is. Holds no sample.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/dataset/recommend/csv_form.h"

namespace trireme::dataset {

inline constexpr const char* kSchemaFile = "features.json";
inline constexpr const char* kTrainingFile = "train.bin";
inline constexpr const char* kValidationFile = "validation.bin";
inline constexpr const char* kItemsFile = "items.bin";

inline constexpr int64_t kMaxDense = 1 << 16;
inline constexpr int64_t kMaxTables = 1 << 12;
inline constexpr int64_t kMaxTableRows = int64_t{1} << 32;  // ids take four bytes
inline constexpr int64_t kMaxIdsPerTable = (1 << 16) - 1;   // lengths take two
inline constexpr int64_t kMaxIdsPerSample = 1 << 20;
inline constexpr int64_t kMaxSamples = int64_t{1} << 40;

// Which tower of a two-tower model reads a table.
enum class TableSide { kQuery, kItem };
inline constexpr Choice<TableSide> kTableSides[] = {{"query", TableSide::kQuery},
                                                    {"item", TableSide::kItem}};

enum class LabelKind {
  kNone,    // pairs of a query and an item that belong together
  kBinary,  // 0 or 1, such as whether an advertisement was clicked
  kClass,   // a class, from 0
};
inline constexpr Choice<LabelKind> kLabelKinds[] = {
    {"none", LabelKind::kNone}, {"binary", LabelKind::kBinary}, {"class", LabelKind::kClass}};

struct FeatureTable {
  std::string name{};
  int64_t rows = 0;  // ids are 0 to rows - 1; 0 if they are hashes
  // How many ids a sample has. When the two are equal, records need not say how many.
  int64_t min_ids = 1;
  int64_t max_ids = 1;
  TableSide side = TableSide::kQuery;
  bool is_hashed = false;  // ids are any 64-bit numbers
  bool operator==(const FeatureTable&) const = default;
};

struct FeatureSchema {
  std::vector<std::string> dense{};    // the names of the numbers
  std::vector<FeatureTable> tables{};  // those of items are the last
  LabelKind label = LabelKind::kNone;
  std::vector<std::string> classes{};  // the names of the classes, by number
  int64_t num_training = 0;            // samples in train.bin
  int64_t num_validation = 0;          // in validation.bin; 0: no such file
  int64_t num_items = 0;               // in items.bin; 0 exactly if no table is of items
  // Categories that occur more rarely in the training data share row 0. 0: no dictionary.
  int64_t min_count = 0;
  std::optional<CsvForm> csv{};  // of data that was prepared from CSV
  bool operator==(const FeatureSchema&) const = default;

  int64_t num_dense() const { return static_cast<int64_t>(dense.size()); }
  int64_t num_tables() const { return static_cast<int64_t>(tables.size()); }
  // The tables of that side, and the largest number of ids that a sample has in them.
  int64_t num_tables(TableSide side) const;
  int64_t num_ids(TableSide side) const;
  int64_t num_ids() const { return num_ids(TableSide::kQuery) + num_ids(TableSide::kItem); }
  bool has_hashes() const;  // any table
};

// Throws: ConfigError that begins with `source` when a value is out of its range, a name occurs
//         twice or cannot be shown, a table of items is not last, or the counts disagree
void check_schema(const FeatureSchema& schema, const std::string& source);

// The schema of a prepared folder.
// Throws: ConfigError with the path when the file is missing, is not such a file, or as
//         check_schema()
FeatureSchema read_schema(const std::filesystem::path& folder);

// The text of features.json.
std::string to_json(const FeatureSchema& schema);

}  // namespace trireme::dataset
