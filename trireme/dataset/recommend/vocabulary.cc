#include "trireme/dataset/recommend/vocabulary.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/recommend/dictionary.h"
#include "trireme/dataset/recommend/feature_source.h"
#include "trireme/dataset/recommend/record_file.h"

namespace trireme::dataset {
namespace {

std::vector<std::string> names_of_features(const FeatureSchema& schema) {
  std::vector<std::string> names = schema.dense;
  for (const FeatureTable& table : schema.tables) {
    names.push_back(concat(name_of(kTableSides, table.side), table.name));
  }
  return names;
}

}  // namespace

Vocabulary::Vocabulary(const FeatureSchema& schema, const PrepareFeaturesOptions& options,
                       Progress progress)
    : RawPass(options.seed, options.validation_fraction, std::move(progress)),
      schema_(schema),
      num_queries_(static_cast<size_t>(schema.num_tables(TableSide::kQuery))),
      dictionaries_(schema.tables.size()),
      moments_(schema.csv ? schema.dense.size() : 0),
      most_(schema.tables.size(), 1) {
  const bool is_hashed = options.ids == CategoryIds::kHash;
  schema_.min_count = is_hashed ? 0 : options.min_count;
  for (FeatureTable& table : schema_.tables) table.is_hashed = is_hashed;
  if (!options.dictionary.empty()) load(options.dictionary);
}

void Vocabulary::on_item(std::string_view key, const Categories& categories) {
  if (items_.names.find(key) >= 0) return;
  items_.names.add(key);
  for (size_t i = 0; i < categories.size(); ++i) {
    const size_t t = num_queries_ + i;
    size_t left = categories[i].size();
    if (is_given_) left = std::min(left, static_cast<size_t>(schema_.tables[t].max_ids));
    most_[t] = std::max(most_[t], left);
    for (const std::string_view category : categories[i]) {
      if (left-- == 0) break;
      items_.values.push_back(has_ids(t) ? id_of(t, category) : dictionaries_[t].add(category));
    }
    items_.ends.push_back(items_.values.size());
  }
}

void Vocabulary::on_sample(const RawSample& sample) {
  if (is_given_) return;
  if (schema_.label == LabelKind::kClass) classes_.add(sample.class_name);
  const bool is_training = !is_for_validation(sample);
  for (size_t d = 0; is_training && d < moments_.size(); ++d) {
    if (!std::isnan(sample.numbers[d])) moments_[d].add(sample.numbers[d]);
  }
  for (size_t t = 0; t < num_queries_; ++t) {
    most_[t] = std::max(most_[t], sample.categories[t].size());
    if (!is_training || has_ids(t)) continue;
    for (const std::string_view category : sample.categories[t]) {
      dictionaries_[t].count(dictionaries_[t].add(category));
    }
  }
  if (!is_training) return;
  for (size_t t = num_queries_; t < schema_.tables.size(); ++t) {
    if (has_ids(t)) continue;
    for (const int64_t value : values_of(item(sample.item), t)) dictionaries_[t].count(value);
  }
}

void Vocabulary::close() {
  schema_.num_items = items_.names.size();
  if (is_given_) return;
  for (size_t d = 0; d < moments_.size(); ++d) {
    CsvNumber& number = schema_.csv->numbers[d];
    number.mean = moments_[d].mean();
    number.deviation = moments_[d].deviation();
  }
  for (int64_t c = 0; c < classes_.size(); ++c) schema_.classes.emplace_back(classes_[c]);
  std::ranges::sort(schema_.classes);
  for (size_t t = 0; t < schema_.tables.size(); ++t) {
    FeatureTable& table = schema_.tables[t];
    if (!table.is_hashed) {
      dictionaries_[t].close(schema_.min_count);
      table.rows = dictionaries_[t].num_rows();
    }
    if (table.max_ids > 1) table.max_ids = static_cast<int64_t>(most_[t]);
  }
}

int64_t Vocabulary::class_of(std::string_view name) const {
  const auto found = std::ranges::lower_bound(schema_.classes, name);
  TRIREME_CHECK(found != schema_.classes.end() && *found == name, "the class \"", shown(name),
                "\" is not in the dictionary; expected one of its ", schema_.classes.size(),
                " classes");
  return found - schema_.classes.begin();
}

std::span<const int64_t> Vocabulary::values_of(int64_t item, size_t table) const {
  const size_t num_tables = schema_.tables.size() - num_queries_;
  const size_t place = static_cast<size_t>(item) * num_tables + table - num_queries_;
  const size_t begin = place == 0 ? 0 : items_.ends[place - 1];
  return std::span(items_.values).subspan(begin, items_.ends[place] - begin);
}

void Vocabulary::write_items(const std::filesystem::path& folder) const {
  if (schema_.num_items == 0) return;
  const IdLayout layout = item_layout(schema_);
  RecordWriter writer(folder / kItemsFile, layout.end());
  std::vector<std::vector<int64_t>> ids(schema_.tables.size() - num_queries_);
  for (int64_t item = 0; item < schema_.num_items; ++item) {
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t t = num_queries_ + i;
      ids[i].clear();
      for (const int64_t value : values_of(item, t)) {
        ids[i].push_back(has_ids(t) ? value : dictionaries_[t].row(value));
      }
    }
    layout.pack(ids, writer.next());
  }
  writer.finish();
  write_item_names(folder / kItemNamesFile, items_.names);
}

void Vocabulary::load(const std::filesystem::path& folder) {
  const FeatureSchema saved = read_schema(folder);
  bool fits =
      names_of_features(saved) == names_of_features(schema_) && saved.label == schema_.label;
  for (size_t t = 0; fits && t < saved.tables.size(); ++t) {
    fits = saved.tables[t].min_ids <= schema_.tables[t].min_ids;
  }
  TRIREME_CHECK(fits, folder.string(),
                " has other features than the input; expected a dictionary of the same kind of "
                "data");
  TRIREME_CHECK(std::ranges::is_sorted(saved.classes), folder.string(),
                ": the classes are not in the order of their names; prepare the data again");
  dictionaries_ = read_dictionaries(folder / kDictionaryFile, saved);
  schema_ = saved;
  is_given_ = true;
  if (saved.num_items == 0) return;
  items_.names = read_item_names(folder / kItemNamesFile, saved.num_items);
  const ItemCatalogue catalogue(folder / kItemsFile, saved);
  std::vector<int64_t> ids(static_cast<size_t>(saved.num_ids(TableSide::kItem)));
  std::vector<int64_t> lengths(static_cast<size_t>(saved.num_tables(TableSide::kItem)));
  for (int64_t item = 0; item < saved.num_items; ++item) {
    const auto count = static_cast<std::ptrdiff_t>(catalogue.read(item, ids, lengths));
    items_.values.insert(items_.values.end(), ids.begin(), ids.begin() + count);
    for (const int64_t length : lengths) {
      const uint64_t begin = items_.ends.empty() ? 0 : items_.ends.back();
      items_.ends.push_back(begin + static_cast<uint64_t>(length));
    }
  }
}

}  // namespace trireme::dataset
