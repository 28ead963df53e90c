#include "trireme/dataset/recommend/record_file.h"

#include <bit>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/recommend/feature_schema.h"

namespace trireme::dataset {
namespace {

constexpr size_t kRecordsAtOnce = size_t{1} << 20;

static_assert(std::endian::native == std::endian::little, "records are little-endian");

constexpr size_t kIdBytes = 4;
constexpr size_t kHashBytes = 8;
constexpr size_t kLengthBytes = 2;

// The file that is there, without what is behind its first records.
const std::filesystem::path& cut(const std::filesystem::path& path, size_t record_bytes,
                                 int64_t num_records) {
  if (num_records == 0) return path;
  const uint64_t num_bytes = record_bytes * static_cast<uint64_t>(num_records);
  std::error_code failure;
  const uint64_t size = std::filesystem::file_size(path, failure);
  if (!failure && size < num_bytes) {
    throw Error(concat("cannot go on with ", path.string(), ": it has ", size,
                       " bytes; expected at least ", num_bytes));
  }
  if (!failure) std::filesystem::resize_file(path, num_bytes, failure);
  if (failure) throw Error(concat("cannot write ", path.string(), ": ", failure.message()));
  return path;
}

size_t bytes_of_id(const FeatureTable& table) { return table.is_hashed ? kHashBytes : kIdBytes; }

}  // namespace

RecordFile::RecordFile(const std::filesystem::path& path, size_t record_bytes)
    : file_(as_config_error([&] { return InputFile(path); })),
      record_bytes_(record_bytes),
      size_(static_cast<int64_t>(file_.num_bytes() / record_bytes)) {
  TRIREME_CHECK(file_.num_bytes() > 0 && file_.num_bytes() % record_bytes == 0, name(), " has ",
                file_.num_bytes(), " bytes; expected whole records of ", record_bytes,
                " bytes, as in ", kSchemaFile, "; prepare the data again");
}

void RecordFile::check_size(int64_t expected, const char* what) const {
  TRIREME_CHECK(size_ == expected, name(), " has ", size_, " ", what, " and ", kSchemaFile, " ",
                expected, "; prepare the data again");
}

void RecordFile::read(int64_t index, std::span<std::byte> record) const {
  TRIREME_ASSERT(index >= 0 && index < size_, "record ", index, " of ", size_);
  as_config_error([&] { file_.read(static_cast<uint64_t>(index) * record_bytes_, record); },
                  "; the data must stay as it is during a run");
}

RecordWriter::RecordWriter(const std::filesystem::path& path, size_t record_bytes)
    : RecordWriter(path, record_bytes, 0) {}

RecordWriter::RecordWriter(const std::filesystem::path& path, size_t record_bytes,
                           int64_t num_records)
    : record_bytes_(record_bytes),
      num_records_(num_records),
      file_(cut(path, record_bytes, num_records), /*append=*/num_records > 0) {}

std::span<std::byte> RecordWriter::next() {
  if (records_.size() >= kRecordsAtOnce) flush();
  records_.resize(records_.size() + record_bytes_);
  ++num_records_;
  return std::span(records_).last(record_bytes_);
}

void RecordWriter::flush() {
  file_.write(records_.data(), records_.size());
  records_.clear();
}

int64_t RecordWriter::sync() {
  flush();
  file_.sync();
  return num_records_;
}

int64_t RecordWriter::finish() {
  sync();
  file_.close();
  return num_records_;
}

size_t IdLayout::Table::place_of(size_t i) const { return ids_at + bytes_of_id(table) * i; }

IdLayout::IdLayout(const FeatureSchema& schema, TableSide side, size_t begin) : end_(begin) {
  for (const FeatureTable& table : schema.tables) {
    if (table.side != side) continue;
    tables_.push_back({.table = table, .ids_at = end_});
    num_ids_ += table.max_ids;
    end_ += bytes_of_id(table) * static_cast<size_t>(table.max_ids);
  }
  for (Table& table : tables_) {
    if (table.table.min_ids == table.table.max_ids) continue;
    table.length_at = end_;
    end_ += kLengthBytes;
  }
  end_ = (end_ + kIdBytes - 1) / kIdBytes * kIdBytes;
}

int64_t IdLayout::unpack(std::span<const std::byte> record, std::span<int64_t> ids,
                         std::span<int64_t> lengths,
                         const std::function<std::string()>& where) const {
  size_t count = 0;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const FeatureTable& table = tables_[t].table;
    const size_t length_at = tables_[t].length_at;
    const int64_t length =
        length_at == 0 ? table.max_ids : load_number<uint16_t>(record, length_at);
    TRIREME_CHECK(length >= table.min_ids && length <= table.max_ids, where(), ": ",
                  shown(table.name), " has ", length, " ids; expected ", table.min_ids, " to ",
                  table.max_ids);
    lengths[t] = length;
    for (size_t i = 0; i < static_cast<size_t>(length); ++i) {
      if (table.is_hashed) {
        ids[count++] = load_number<int64_t>(record, tables_[t].place_of(i));
        continue;
      }
      const int64_t id = load_number<uint32_t>(record, tables_[t].place_of(i));
      TRIREME_CHECK(id < table.rows, where(), ": ", shown(table.name), " has the id ", id,
                    "; expected 0 to ", table.rows - 1, ", the rows of its table");
      ids[count++] = id;
    }
  }
  return static_cast<int64_t>(count);
}

void IdLayout::pack(std::span<const std::vector<int64_t>> ids, std::span<std::byte> record) const {
  TRIREME_ASSERT(ids.size() == tables_.size(), ids.size(), " lists for ", tables_.size(),
                 " tables");
  for (size_t t = 0; t < tables_.size(); ++t) {
    const FeatureTable& table = tables_[t].table;
    const size_t length_at = tables_[t].length_at;
    const int64_t length = std::ssize(ids[t]);
    TRIREME_ASSERT(length >= table.min_ids && length <= table.max_ids, length, " ids of ",
                   table.name);
    if (length_at != 0) store_number(record, length_at, static_cast<uint16_t>(length));
    for (size_t i = 0; i < ids[t].size(); ++i) {
      if (table.is_hashed) {
        store_number(record, tables_[t].place_of(i), ids[t][i]);
        continue;
      }
      TRIREME_ASSERT(ids[t][i] >= 0 && ids[t][i] < table.rows, "id ", ids[t][i], " of ",
                     table.name);
      store_number(record, tables_[t].place_of(i), static_cast<uint32_t>(ids[t][i]));
    }
  }
}

SampleLayout::SampleLayout(const FeatureSchema& schema)
    : label_at(schema.label == LabelKind::kNone ? kNone : 0),
      dense_at(label_at == kNone ? 0 : sizeof(int32_t)),
      item_at(schema.num_items == 0 ? kNone : dense_at + schema.dense.size() * sizeof(float)),
      ids(schema, TableSide::kQuery,
          dense_at + schema.dense.size() * sizeof(float) +
              (item_at == kNone ? 0 : sizeof(uint32_t))) {}

IdLayout item_layout(const FeatureSchema& schema) { return {schema, TableSide::kItem, 0}; }

}  // namespace trireme::dataset
