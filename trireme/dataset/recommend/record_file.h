// Files of records of one size: reading and writing them, and where the values of a record lie in
// train.bin, validation.bin and items.bin (docs/design/feature-files.md). All numbers are
// little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset {

// Thread safe.
class RecordFile {
 public:
  // Throws: ConfigError with the path when there is no such file, or it is empty or not a whole
  //         number of records
  RecordFile(const std::filesystem::path& path, size_t record_bytes);

  std::string name() const { return file_.path().string(); }
  int64_t size() const { return size_; }  // in records
  size_t record_bytes() const { return record_bytes_; }
  // Throws: ConfigError unless there are `expected` records. what: "samples"
  void check_size(int64_t expected, const char* what) const;

  // Throws: ConfigError when the file has become shorter
  void read(int64_t index, std::span<std::byte> record) const;

 private:
  InputFile file_;
  size_t record_bytes_;
  int64_t size_;
};

// The bytes of one record, on the stack unless there are many.
class RecordBytes {
 public:
  explicit RecordBytes(size_t size) : size_(size), large_(size > small_.size() ? size : 0) {}
  std::span<std::byte> bytes() { return {large_.empty() ? small_.data() : large_.data(), size_}; }

 private:
  size_t size_;
  std::array<std::byte, 1024> small_;
  std::vector<std::byte> large_;
};

// Writes a file of records.
class RecordWriter {
 public:
  // Throws: Error when the file cannot be created
  RecordWriter(const std::filesystem::path& path, size_t record_bytes);
  // Goes on behind the first `num_records` of a file that is there; with 0 creates it.
  // Throws: Error when the file has fewer, or cannot be written
  RecordWriter(const std::filesystem::path& path, size_t record_bytes, int64_t num_records);

  // The next record, of zeros. The span is valid until the next call.
  // Throws: Error when the disk is full
  std::span<std::byte> next();

  // Brings the records to the disk. Returns how many there are.
  int64_t sync();
  // The same, and closes the file.
  int64_t finish();

 private:
  void flush();

  size_t record_bytes_;
  int64_t num_records_ = 0;
  OutputFile file_;
  std::vector<std::byte> records_;  // not written yet
};

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

}  // namespace trireme::dataset
