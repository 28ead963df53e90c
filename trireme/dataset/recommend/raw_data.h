// Data of recommendation before it is prepared: samples with the texts of their categories, read
// from the beginning once per pass. One kind is pairs of a query and an item that belong together,
// such as a user and what the user bought.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset {

// The categories of a sample or an item, for each table of its side in turn.
using Categories = std::vector<std::vector<std::string_view>>;

// Whether every sample must have a label. kOptional: rows to predict may lack it, and one that is
// there is not read.
enum class Labels { kRequired, kOptional };

// Views are valid until the next sample.
struct RawSample {
  std::vector<float> dense{};
  std::vector<double> numbers{};  // CSV: the same before the transform; NaN: missing
  Categories categories{};
  double label = 0;               // if the label is binary
  std::string_view class_name{};  // if it is a class
  std::string_view item{};        // if there are items: a key that was announced
  // Samples with equal numbers are all for training, or all for validation.
  uint64_t group = 0;
};

class RawVisitor {
 public:
  virtual ~RawVisitor() = default;
  // The item of the next sample. A catalogue takes what the first call with a key says.
  virtual void on_item(std::string_view key, const Categories& categories) = 0;
  virtual void on_sample(const RawSample& sample) = 0;
  // So many more bytes of the input were read.
  virtual void on_bytes(int64_t num_bytes) = 0;
};

class RawData {
 public:
  virtual ~RawData() = default;
  // Names, sides, numbers of ids, kind of label. rows, classes and counts are not known yet;
  // max_ids is 1 where a sample has exactly one, otherwise how many are taken at most.
  virtual const FeatureSchema& schema() const = 0;
  // Size of the input, for progress.
  virtual int64_t num_bytes() const = 0;
  // Throws: ConfigError with the file, the line and the column that are wrong
  virtual void read(RawVisitor& visitor) const = 0;
};

// Lines of columns separated by tabs. The first line names them: `query` and `item`, with features
// besides such as `query.country` and `item.tags*`. A column whose name ends in * has any number of
// values, up to 64, separated by |; the name's * is dropped. The first column of items says which
// item it is; its other features are taken from the first line that has it. Several files have the
// same first line.
std::unique_ptr<RawData> open_pairs(const std::vector<std::string>& paths);

enum class RawFormat;  // prepare_features.h
// The reader of a format. `labels` is for criteo, criteo-binary and csv; other formats have labels
// that are part of them, or none.
// schema: whose columns csv has (csv_data.h); other formats know theirs
// Throws: ConfigError when an input cannot be opened, or the schema is not of CSV
std::unique_ptr<RawData> open_raw(RawFormat format, const std::vector<std::string>& inputs,
                                  Labels labels = Labels::kRequired,
                                  const FeatureSchema* schema = nullptr);

}  // namespace trireme::dataset
