// Schemas and records for the tests of recommendation data.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset {

// Two numbers; one table with exactly one id, one with up to three; a binary label.
inline FeatureSchema click_schema() {
  return {.dense = {"age", "price"},
          .tables = {{.name = "user", .rows = 5},
                     {.name = "words", .rows = 100, .min_ids = 0, .max_ids = 3}},
          .label = LabelKind::kBinary,
          .num_training = 2};
}

// A table of queries, two of items, no label.
inline FeatureSchema pair_schema() {
  return {
      .tables = {{.name = "query", .rows = 7},
                 {.name = "item", .rows = 4, .side = TableSide::kItem},
                 {.name = "tags", .rows = 9, .min_ids = 0, .max_ids = 2, .side = TableSide::kItem}},
      .num_training = 2,
      .num_items = 3};
}

// A number, a category and a label of a CSV table, whose column `id` is not used.
inline FeatureSchema csv_features() {
  return {.dense = {"age"},
          .tables = {{.name = "city", .rows = 5}},
          .label = LabelKind::kBinary,
          .num_training = 2,
          .min_count = 1,
          .csv = CsvForm{.separator = '\t',
                         .label = "clicked",
                         .dropped = {"id"},
                         .numbers = {{NumberTransform::kStandard, 41.5, 0.1}},
                         .missing = MissingNumbers::kMean,
                         .missing_texts = {"NA"}}};
}

template <typename Number>
std::string bytes_of(std::vector<Number> numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// One record of click_schema(): 28 bytes and two of padding.
inline std::string click_record(float label, std::vector<float> dense, uint32_t user,
                                std::vector<uint32_t> words, uint16_t num_words) {
  words.resize(3);
  return bytes_of<float>({label}) + bytes_of(dense) + bytes_of<uint32_t>({user}) + bytes_of(words) +
         bytes_of<uint16_t>({num_words, 0});
}

}  // namespace trireme::dataset
