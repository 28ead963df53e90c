// The result of the first pass over raw data: categories and their rows, classes, items.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/random/random.h"
#include "trireme/dataset/recommend/dictionary.h"
#include "trireme/dataset/recommend/prepare_features.h"
#include "trireme/dataset/recommend/raw_data.h"

namespace trireme::dataset {

// The shared part of both passes: the split of samples, and progress.
class RawPass : public RawVisitor {
 public:
  using Progress = std::function<void(int64_t)>;  // called with bytes that were read
  RawPass(uint64_t seed, double validation_fraction, Progress progress)
      : key_(random_key(seed, "validation")),
        fraction_(validation_fraction),
        progress_(std::move(progress)) {}

  void on_bytes(int64_t num_bytes) override { progress_(num_bytes); }

 protected:
  bool is_for_validation(const RawSample& sample) const {
    return fraction_ > 0 && random_uniform(key_, sample.group) < fraction_;
  }

 private:
  RandomKey key_;
  double fraction_;
  Progress progress_;
};

class Vocabulary : public RawPass {
 public:
  // schema: of the raw data. With options.dictionary the tables, classes and items are those of
  //         that folder, and items are added.
  // Throws: ConfigError when that folder is damaged or has other features
  Vocabulary(const FeatureSchema& schema, const PrepareFeaturesOptions& options, Progress progress);

  void on_item(std::string_view key, const Categories& categories) override;
  void on_sample(const RawSample& sample) override;
  // After the pass: decides which category has which row, and fills in the schema except for the
  // numbers of samples.
  void close();

  FeatureSchema& schema() { return schema_; }
  const std::vector<Dictionary>& dictionaries() const { return dictionaries_; }  // of each table
  int64_t id_of(size_t table, std::string_view category) const {
    return schema_.tables[table].is_hashed ? hash_of(category) : dictionaries_[table].row(category);
  }
  int64_t item(std::string_view key) const { return items_.names.find(key); }
  // Throws: ConfigError for a class that options.dictionary lacks
  int64_t class_of(std::string_view name) const;

  // Writes items.bin and items.txt, if there are items.
  void write_items(const std::filesystem::path& folder) const;

 private:
  // In the order of their first use, with their categories by number; by id if has_ids().
  struct Items {
    TextNumbers names;
    std::vector<int64_t> values;
    std::vector<uint64_t> ends;  // in values, for each item and each table of items
  };

  void load(const std::filesystem::path& folder);
  std::span<const int64_t> values_of(int64_t item, size_t table) const;
  // Whether the ids of categories are known in the first pass.
  bool has_ids(size_t table) const { return is_given_ || schema_.tables[table].is_hashed; }

  FeatureSchema schema_;
  size_t num_queries_;     // tables of queries
  bool is_given_ = false;  // the dictionaries are those of another folder
  std::vector<Dictionary> dictionaries_;
  std::vector<NumberMoments> moments_;  // CSV: of the training samples' numbers
  std::vector<size_t> most_;            // ids that a sample or an item has of a table
  TextNumbers classes_;
  Items items_;
};

}  // namespace trireme::dataset
