// The samples of a prepared recommendation data set, and its catalogue of items
// (docs/design/feature-files.md). Reads a record from the file when it is asked for; keeps none.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "trireme/dataset/recommend/feature_schema.h"
#include "trireme/dataset/source.h"

namespace trireme::dataset {

// All items, for two-tower models. Item i has
//   ids      int64 [K], K = schema.num_ids(kItem): those of the tables of items, table after table
//            without gaps, then zeros
//   lengths  int64 [T], T = schema.num_tables(kItem): how many ids each table has
class ItemCatalogue : public Source {
 public:
  // Throws: ConfigError with the path when the schema has no items, when the file is missing or its
  //         size is not that of the schema's items
  ItemCatalogue(const std::filesystem::path& path, const FeatureSchema& schema);
  ~ItemCatalogue() override;

  int64_t size() const override;
  // Throws: ConfigError with path, item and column for an id beyond its table or a wrong length
  NamedTensors get(int64_t item, std::optional<RandomKey> augmentation = {}) const override;

  // Writes what get() returns, and returns the number of ids before the zeros.
  int64_t read(int64_t item, std::span<int64_t> ids, std::span<int64_t> lengths) const;

 private:
  struct File;
  std::unique_ptr<const File> file_;
};

// A sample has
//   dense    fp32 [D], D = schema.num_dense(); absent if D = 0
//   ids      int64 [K], K = schema.num_ids(): those of all tables, table after table without gaps,
//            then zeros; absent if there are no tables
//   lengths  int64 [T], T = schema.num_tables(): how many ids each table has; absent if T = 0
//   label    fp32 [1], 0 or 1; or int64 [1], the class; absent if the schema has no labels
//   item     int64 [1], the number in the catalogue of the item whose ids these are; absent if the
//            schema has no items
class FeatureSource : public Source {
 public:
  // items: the schema's catalogue; null exactly if the schema has no items
  // num_samples: how many samples the file must have; 0: any number but none
  // Throws: ConfigError with the path when the file is missing, is empty, is not a whole number of
  //         records, or has not `num_samples`
  FeatureSource(const std::filesystem::path& path, const FeatureSchema& schema,
                std::shared_ptr<const ItemCatalogue> items = nullptr, int64_t num_samples = 0);
  ~FeatureSource() override;

  int64_t size() const override;
  // Throws: ConfigError with path, record, column and value for a dense feature that is infinite or
  //         NaN, an id beyond its table, a wrong length, label or item; when the file has become
  //         shorter
  NamedTensors get(int64_t index, std::optional<RandomKey> augmentation = {}) const override;
  void get_into(int64_t index, std::optional<RandomKey> augmentation, NamedTensors& batch,
                int64_t b) const override;

 private:
  struct File;
  std::unique_ptr<const File> file_;
};

// The contents of a prepared folder.
struct FeatureData {
  FeatureSchema schema{};
  std::shared_ptr<const ItemCatalogue> items{};  // null without items
  std::shared_ptr<const FeatureSource> training{};
  std::shared_ptr<const FeatureSource> validation{};  // null without validation samples
};
// Throws: ConfigError as read_schema() and the sources
FeatureData open_features(const std::filesystem::path& folder);

}  // namespace trireme::dataset
