// The categories of a table, and their rows. Row 0 is that of all categories that are rarer than a
// threshold or unknown. The others follow in the order of their bytes, so that rows depend neither
// on the order of samples nor on ties, and frequent categories are spread over the table.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset {

// The id of a category without a dictionary: XXH3's 64 bits of its bytes.
int64_t hash_of(std::string_view category);

// Different texts, numbered in the order of their first use.
// Memory: the texts, and about 16 bytes each
class TextNumbers {
 public:
  static constexpr size_t kMaxTextBytes = 4096;

  // Throws: ConfigError for a text of more than kMaxTextBytes, or the text number 2^32
  int64_t add(std::string_view text);
  int64_t find(std::string_view text) const;  // -1: none
  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  std::string_view operator[](int64_t number) const;

 private:
  size_t slot_of(std::string_view text) const;
  void grow();

  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t block_used_ = 0;
  std::vector<uint64_t> places_;  // of each text, in all blocks; its length in the lowest bits
  std::vector<uint32_t> slots_;   // 1 + number; 0: free
};

class Dictionary {
 public:
  // Returns the number of a category, which it has from now on.
  int64_t add(std::string_view category);
  // Counts an occurrence in the training data.
  void count(int64_t number) { ++counts_[static_cast<size_t>(number)]; }
  // Gives rows to the categories that were counted at least `min_count` times.
  void close(int64_t min_count);  // at least 1
  // Instead: adds a category that gets the next row. False when it is known.
  bool append(std::string_view category);

  int64_t num_rows() const { return static_cast<int64_t>(kept_.size()) + 1; }
  int64_t num_categories() const { return texts_.size(); }
  // The row of a category, and that of the category with a number.
  int64_t row(std::string_view category) const;
  int64_t row(int64_t number) const { return rows_[static_cast<size_t>(number)]; }
  // The category of a row from 1 on.
  std::string_view category(int64_t row) const {
    return texts_[kept_[static_cast<size_t>(row - 1)]];
  }

 private:
  TextNumbers texts_;
  std::vector<int64_t> counts_;  // by number
  std::vector<uint32_t> rows_;   // by number
  std::vector<uint32_t> kept_;   // by row - 1: numbers
};

// The texts of categories and items in a prepared folder (docs/design/feature-files.md).

// dictionary.txt: for each table in turn a line for each row from 1 on.
// Throws: ConfigError for a category that ends in a carriage return
void write_dictionaries(const std::filesystem::path& path,
                        const std::vector<Dictionary>& dictionaries);
// Throws: ConfigError with the path when there are more or fewer lines than rows, or one twice
std::vector<Dictionary> read_dictionaries(const std::filesystem::path& path,
                                          const FeatureSchema& schema);

// items.txt: line i + 1 is the name of item i. Throws as above.
void write_item_names(const std::filesystem::path& path, const TextNumbers& names);
TextNumbers read_item_names(const std::filesystem::path& path, int64_t num_items);

}  // namespace trireme::dataset
