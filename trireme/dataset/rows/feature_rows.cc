#include "trireme/dataset/rows/feature_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/dataset/recommend/criteo.h"
#include "trireme/dataset/recommend/dictionary.h"
#include "trireme/dataset/recommend/raw_data.h"
#include "trireme/dataset/rows/file_rows.h"

namespace trireme::dataset {
namespace {

std::vector<std::string> names_of_columns(const FeatureSchema& schema) {
  std::vector<std::string> names = schema.dense;
  for (const FeatureTable& table : schema.tables) names.push_back(table.name);
  return names;
}

// The columns of raw data against those of a model.
void check_features(const FeatureSchema& raw, const FeatureSchema& schema,
                    const std::string& input) {
  const std::vector<std::string> found = names_of_columns(raw), wanted = names_of_columns(schema);
  if (found == wanted) return;
  const auto lacking = std::ranges::find_if(
      wanted, [&](const std::string& name) { return std::ranges::count(found, name) == 0; });
  throw ConfigError(concat(
      input, " has ", raw.num_dense(), " numbers and ", raw.num_tables(), " features of ids; the ",
      "model has ", schema.num_dense(), " and ", schema.num_tables(),
      lacking == wanted.end() ? "" : concat(", among them \"", shown(*lacking), "\""),
      "; expected rows in the format of its training data"));
}

// The dictionary's folder against the run's own copy of the schema.
void check_dictionary(const FeatureSchema& saved, const FeatureSchema& schema,
                      const std::filesystem::path& folder) {
  const bool is_same = saved.dense == schema.dense && saved.tables == schema.tables &&
                       saved.classes == schema.classes && saved.label == schema.label;
  TRIREME_CHECK(is_same, folder.string(),
                " has other features or numbers of rows than the run's training data; give the "
                "prepared folder that the run was trained on with --data");
}

// One input at a time, as a sample does not say which file it is of.
class FeatureRows final : public FileRows, private RawVisitor {
 public:
  FeatureRows(std::span<const std::string> inputs, const FeatureSchema& schema,
              const FeatureRowOptions& options)
      : schema_(schema) {
    for (const std::string& input : inputs) {
      std::unique_ptr<RawData> raw = open_raw(options.format, {input}, Labels::kOptional, &schema_);
      check_features(raw->schema(), schema_, input);
      add_file(input, raw->num_bytes());
      inputs_.push_back(std::move(raw));
    }
    if (schema_.has_hashes()) return;
    TRIREME_CHECK(is_file(options.folder / kDictionaryFile), options.folder.string(), " has no ",
                  kDictionaryFile,
                  ", which says which category has which row; give the prepared folder that the "
                  "run was trained on with --data");
    const FeatureSchema saved = read_schema(options.folder);
    check_dictionary(saved, schema_, options.folder);
    dictionaries_ = read_dictionaries(options.folder / kDictionaryFile, saved);
  }

 private:
  void read_file(size_t index, const std::string& /*path*/, const Use& use) override {
    use_ = &use;
    number_ = 0;
    num_read_ = 0;
    inputs_[index]->read(*this);
  }

  void on_item(std::string_view key, const Categories& categories) override {
    item_ = key;
    item_categories_ = categories;
  }
  void on_bytes(int64_t num_bytes) override { num_read_ += num_bytes; }
  void on_sample(const RawSample& sample) override {
    TRIREME_ASSERT(sample.item == item_, "a sample without its item before it");
    (*use_)({.number = ++number_, .sample = encode(sample)}, num_read_);
  }

  int64_t id_of(size_t table, std::string_view category) const {
    return schema_.tables[table].is_hashed ? hash_of(category) : dictionaries_[table].row(category);
  }

  NamedTensors encode(const RawSample& sample) const {
    NamedTensors tensors;
    if (schema_.num_dense() > 0) {
      const at::Tensor dense = at::empty({schema_.num_dense()}, at::kFloat);
      std::ranges::copy(sample.dense, dense.mutable_data_ptr<float>());
      tensors.emplace_back("dense", dense);
    }
    if (schema_.num_tables() == 0) return tensors;
    const at::Tensor ids = at::zeros({schema_.num_ids()}, at::kLong);
    const at::Tensor lengths = at::empty({schema_.num_tables()}, at::kLong);
    auto* id = ids.mutable_data_ptr<int64_t>();
    const size_t num_queries = sample.categories.size();
    for (size_t t = 0; t < schema_.tables.size(); ++t) {
      const auto& categories =
          t < num_queries ? sample.categories[t] : item_categories_.at(t - num_queries);
      const int64_t count = std::min(std::ssize(categories), schema_.tables[t].max_ids);
      for (int64_t i = 0; i < count; ++i) {
        *id++ = id_of(t, categories[static_cast<size_t>(i)]);
      }
      lengths.mutable_data_ptr<int64_t>()[t] = count;
    }
    tensors.emplace_back("ids", ids);
    tensors.emplace_back("lengths", lengths);
    return tensors;
  }

  FeatureSchema schema_;
  std::vector<std::unique_ptr<RawData>> inputs_;
  std::vector<Dictionary> dictionaries_;  // of each table; empty with hashes
  const Use* use_ = nullptr;              // during read_file()
  int64_t number_ = 0;
  int64_t num_read_ = 0;  // of the file
  // Of the sample that comes next, if samples are pairs.
  std::string_view item_;
  Categories item_categories_;
};

}  // namespace

RawFormat format_of(const FeatureSchema& schema) {
  if (schema.csv) return RawFormat::kCsv;
  if (names_of_columns(schema) == names_of_columns(criteo_schema())) return RawFormat::kCriteo;
  // Of the formats with items, one has numbers besides.
  if (schema.num_tables(TableSide::kItem) > 0 && schema.num_dense() == 0) return RawFormat::kPairs;
  throw ConfigError(
      concat("the features of the training data do not tell its format; name it with "
             "--input-format, one of ",
             in_words(names_of(kRawFormats))));
}

std::unique_ptr<RowSource> open_feature_rows(std::span<const std::string> inputs,
                                             const FeatureSchema& schema,
                                             const FeatureRowOptions& options) {
  return std::make_unique<FeatureRows>(inputs, schema, options);
}

}  // namespace trireme::dataset
