// Small prepared folders that models learn from.
#pragma once

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "trireme/base/random/random.h"
#include "trireme/dataset/recommend/dictionary.h"
#include "trireme/dataset/recommend/feature_schema.h"
#include "trireme/dataset/recommend/record_file.h"

namespace trireme::harness {

// Draws ids of some tables: as many as each allows, few distinct ones.
class IdDraw {
 public:
  explicit IdDraw(uint64_t seed) : key_(random_key(seed, "ids")) {}

  int64_t below(int64_t end) {
    return static_cast<int64_t>(random_uniform(key_, next_++) * static_cast<double>(end));
  }
  std::vector<std::vector<int64_t>> ids(const dataset::FeatureSchema& schema,
                                        dataset::TableSide side) {
    std::vector<std::vector<int64_t>> all;
    for (const dataset::FeatureTable& table : schema.tables) {
      if (table.side != side) continue;
      std::vector<int64_t> ids(
          static_cast<size_t>(table.min_ids + below(table.max_ids - table.min_ids + 1)));
      for (int64_t& id : ids) id = below(table.rows);
      all.push_back(std::move(ids));
    }
    return all;
  }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

template <typename Value>
void put(std::vector<std::byte>& record, size_t at, Value value) {
  std::memcpy(record.data() + at, &value, sizeof(value));
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

// The schema with hashes in place of rows.
inline dataset::FeatureSchema hashed(dataset::FeatureSchema schema) {
  for (dataset::FeatureTable& table : schema.tables) {
    table.is_hashed = true;
    table.rows = 0;
  }
  return schema;
}
inline void hash_ids(std::vector<std::vector<int64_t>>& ids) {
  for (std::vector<int64_t>& list : ids) {
    for (int64_t& id : list) id = dataset::hash_of(std::to_string(id));
  }
}

// Clicks, or classes if it has more than two: three numbers, one table with several ids. The label
// depends on the ids of the first table and on a number.
inline void write_label_folder(const std::filesystem::path& folder, int num_classes,
                               int64_t user_rows = 11, bool is_hashed = false) {
  using namespace dataset;
  FeatureSchema schema{.dense = {"x", "y", "z"},
                       .tables = {{.name = "user", .rows = user_rows},
                                  {.name = "words", .rows = 29, .min_ids = 0, .max_ids = 3},
                                  {.name = "shop", .rows = 5}},
                       .label = num_classes > 2 ? LabelKind::kClass : LabelKind::kBinary,
                       .num_training = 96,
                       .num_validation = 41};
  for (int c = 0; c < num_classes && num_classes > 2; ++c) {
    schema.classes.push_back("class" + std::to_string(c));
  }
  std::filesystem::create_directories(folder);
  const FeatureSchema saved = is_hashed ? hashed(schema) : schema;
  write_text(folder / kSchemaFile, to_json(saved));
  const SampleLayout layout(saved);
  IdDraw draw(3);
  const auto write = [&](const char* name, int64_t count) {
    std::ofstream file(folder / name, std::ios::binary);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<std::byte> record(layout.num_bytes());
      auto ids = draw.ids(schema, TableSide::kQuery);
      const float x = static_cast<float>(draw.below(1000)) / 1000;
      for (size_t d = 0; d < 3; ++d) put(record, layout.dense_at + 4 * d, d == 0 ? x : 0.5F);
      const int64_t label = (ids[0][0] + (x > 0.9F ? 1 : 0)) % num_classes;
      if (num_classes > 2) {
        put(record, layout.label_at, static_cast<int32_t>(label));
      } else {
        put(record, layout.label_at, static_cast<float>(label));
      }
      if (is_hashed) hash_ids(ids);
      layout.ids.pack(ids, record);
      file.write(reinterpret_cast<const char*>(record.data()), std::ssize(record));
    }
  };
  write(kTrainingFile, schema.num_training);
  write(kValidationFile, schema.num_validation);
}

// Queries of a user, who likes every third item.
inline void write_pair_folder(const std::filesystem::path& folder) {
  using namespace dataset;
  const FeatureSchema schema{
      .tables = {{.name = "user", .rows = 13},
                 {.name = "item", .rows = 17, .side = TableSide::kItem},
                 {.name = "tags", .rows = 7, .min_ids = 0, .max_ids = 2, .side = TableSide::kItem}},
      .num_training = 96,
      .num_validation = 41,
      .num_items = 17};
  std::filesystem::create_directories(folder);
  write_text(folder / kSchemaFile, to_json(schema));
  IdDraw draw(4);
  const IdLayout items = item_layout(schema);
  std::ofstream catalogue(folder / kItemsFile, std::ios::binary);
  for (int64_t i = 0; i < schema.num_items; ++i) {
    std::vector<std::byte> record(items.end());
    auto ids = draw.ids(schema, TableSide::kItem);
    ids[0] = {i};
    items.pack(ids, record);
    catalogue.write(reinterpret_cast<const char*>(record.data()), std::ssize(record));
  }
  const SampleLayout layout(schema);
  const auto write = [&](const char* name, int64_t count) {
    std::ofstream file(folder / name, std::ios::binary);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<std::byte> record(layout.num_bytes());
      const auto ids = draw.ids(schema, TableSide::kQuery);
      const int64_t item = (ids[0][0] + 3 * draw.below(5)) % schema.num_items;
      put(record, layout.item_at, static_cast<uint32_t>(item));
      layout.ids.pack(ids, record);
      file.write(reinterpret_cast<const char*>(record.data()), std::ssize(record));
    }
  };
  write(kTrainingFile, schema.num_training);
  write(kValidationFile, schema.num_validation);
}

}  // namespace trireme::harness
