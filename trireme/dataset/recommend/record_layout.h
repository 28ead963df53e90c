// Where the values of a record lie in train.bin, validation.bin and items.bin
// (docs/recommend-data.md). All numbers are little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset::inline internal {

// A number at a byte of a record.
template <typename Number>
Number load_number(std::span<const std::byte> record, size_t at) {
  Number value;
  std::memcpy(&value, record.data() + at, sizeof(value));
  return value;
}
template <typename Number>
void store_number(std::span<std::byte> record, size_t at, Number value) {
  std::memcpy(record.data() + at, &value, sizeof(value));
}

// The ids of some tables, and how many there are of each.
class IdLayout {
 public:
  // begin: the byte in the record where they begin
  IdLayout(const FeatureSchema& schema, TableSide side, size_t begin);

  size_t end() const { return end_; }
  int64_t num_tables() const { return std::ssize(tables_); }
  int64_t num_ids() const { return num_ids_; }

  // Copies the ids to the front of `ids`, table after table without gaps, and returns how many
  // there are. lengths[t] becomes the number of ids of table t.
  // where: the file and the record, for messages
  // Throws: ConfigError with where(), the column and the value for a length or an id out of range
  int64_t unpack(std::span<const std::byte> record, std::span<int64_t> ids,
                 std::span<int64_t> lengths, const std::function<std::string()>& where) const;
  // The reverse, into zeros. ids[t] are those of table t.
  // Throws: InternalError when they are out of range
  void pack(std::span<const std::vector<int64_t>> ids, std::span<std::byte> record) const;

 private:
  struct Table {
    FeatureTable table;
    size_t ids_at = 0;
    size_t length_at = 0;  // 0: the length is fixed

    size_t place_of(size_t i) const;  // of an id
  };
  std::vector<Table> tables_;
  int64_t num_ids_ = 0;
  size_t end_ = 0;
};

// label, dense features, item, ids.
struct SampleLayout {
  explicit SampleLayout(const FeatureSchema& schema);

  static constexpr size_t kNone = ~size_t{0};
  size_t label_at = kNone;
  size_t dense_at = 0;
  size_t item_at = kNone;
  IdLayout ids;
  size_t num_bytes() const { return ids.end(); }
};

IdLayout item_layout(const FeatureSchema& schema);

}  // namespace trireme::dataset::inline internal
