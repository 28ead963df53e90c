// Rows of Parquet and Arrow files as lines of JSON, in the module that has Arrow.
#include <charconv>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>
#include <parquet/schema.h>

#include "trireme/dataset/columns/arrow_parts.h"
#include "trireme/dataset/columns/text_column.h"

namespace trireme::dataset {
namespace {

using namespace arrow_parts;

constexpr int64_t kJsonRowsAtOnce = 64;
constexpr size_t kJsonPieceBytes = size_t{1} << 20;  // of rows that are given at once
constexpr int kMostJsonDepth = 32;

// Whether JSON can say what values of a type are.
bool is_writable(const arrow::DataType& type, int depth = 0) {
  if (depth == kMostJsonDepth) return false;
  switch (type.id()) {
    case arrow::Type::NA:
    case arrow::Type::BOOL:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
    case arrow::Type::STRING_VIEW:
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY: return true;
    case arrow::Type::DICTIONARY:
      return is_writable(*static_cast<const arrow::DictionaryType&>(type).value_type(), depth + 1);
    case arrow::Type::MAP: {
      const auto& map = static_cast<const arrow::MapType&>(type);
      return arrow::is_base_binary_like(map.key_type()->id()) &&
             is_writable(*map.item_type(), depth + 1);
    }
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
    case arrow::Type::STRUCT:
      for (const auto& field : type.fields())
        if (!is_writable(*field->type(), depth + 1)) return false;
      return true;
    default: return arrow::is_integer(type.id());
  }
}

// Writes values of arrays that were validated in full. Every value adds at least a byte, so the
// limit of the text bounds the work too.
class JsonText {
 public:
  const std::string& text() const { return text_; }
  void clear() { text_.clear(); }

  // An object with the row's values.
  void add_row(const arrow::RecordBatch& batch, int64_t row) {
    begin_ = text_.size();
    bool is_first = true;
    text_ += '{';
    for (int i = 0; i < batch.num_columns(); ++i) {
      const arrow::Array& column = *batch.column(i);
      if (is_null(column, row)) continue;
      add_member(batch.column_name(i), is_first);
      add(column, row);
    }
    text_ += '}';
  }

 private:
  static bool is_null(const arrow::Array& array, int64_t i) {
    if (array.type_id() == arrow::Type::NA || array.IsNull(i)) return true;
    if (array.type_id() != arrow::Type::DICTIONARY) return false;
    const auto& codes = static_cast<const arrow::DictionaryArray&>(array);
    return is_null(*codes.dictionary(), codes.GetValueIndex(i));
  }

  void check_size() const {
    if (text_.size() - begin_ > kMostRowJsonBytes) {
      fail(" has a row of more than " + std::to_string(kMostRowJsonBytes) +
           " bytes; expected shorter ones");
    }
  }

  void add_member(std::string_view name, bool& is_first) {
    if (!is_first) text_ += ',';
    is_first = false;
    add_text(name);
    text_ += ':';
  }

  void add_text(std::string_view text) {
    constexpr char kDigits[] = "0123456789abcdef";
    text_ += '"';
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        text_ += '\\';
        text_ += c;
      } else if (byte < 0x20) {
        text_ += "\\u00";
        text_ += kDigits[byte >> 4];
        text_ += kDigits[byte & 15];
      } else {
        text_ += c;
      }
    }
    text_ += '"';
    check_size();
  }

  template <typename T>
  void add_number(T value) {
    if constexpr (std::is_floating_point_v<T>) {
      if (!std::isfinite(value)) {
        text_ += "null";
        return;
      }
    }
    char digits[64];
    const std::to_chars_result end = std::to_chars(std::begin(digits), std::end(digits), value);
    const std::string_view number(digits, static_cast<size_t>(end.ptr - digits));
    text_ += number;
    const bool has_point = number.find_first_of(".e") != std::string_view::npos;
    if (std::is_floating_point_v<T> && !has_point) text_ += ".0";
  }

  template <typename Array>
  void add_texts(const arrow::Array& array, int64_t i) {
    add_text(static_cast<const Array&>(array).GetView(i));
  }

  template <typename Array>
  void add_numbers(const arrow::Array& array, int64_t i) {
    add_number(static_cast<const Array&>(array).Value(i));
  }

  template <typename Array>
  void add_list(const arrow::Array& array, int64_t i) {
    const auto& list = static_cast<const Array&>(array);
    const int64_t begin = list.value_offset(i), end = begin + list.value_length(i);
    text_ += '[';
    for (int64_t k = begin; k < end; ++k) {
      if (k > begin) text_ += ',';
      add(*list.values(), k);
    }
    text_ += ']';
  }

  void add_struct(const arrow::StructArray& array, int64_t i) {
    bool is_first = true;
    text_ += '{';
    for (int k = 0; k < array.num_fields(); ++k) {
      add_member(array.struct_type()->field(k)->name(), is_first);
      add(*array.field(k), i);
    }
    text_ += '}';
  }

  void add_map(const arrow::MapArray& array, int64_t i) {
    const int64_t begin = array.value_offset(i), end = begin + array.value_length(i);
    text_ += '{';
    for (int64_t k = begin; k < end; ++k) {
      if (k > begin) text_ += ',';
      add(*array.keys(), k);
      text_ += ':';
      add(*array.items(), k);
    }
    text_ += '}';
  }

  void add(const arrow::Array& array, int64_t i) {
    check_size();
    if (is_null(array, i)) {
      text_ += "null";
      return;
    }
    switch (array.type_id()) {
      case arrow::Type::BOOL:
        text_ += static_cast<const arrow::BooleanArray&>(array).Value(i) ? "true" : "false";
        return;
      case arrow::Type::INT8: return add_numbers<arrow::Int8Array>(array, i);
      case arrow::Type::INT16: return add_numbers<arrow::Int16Array>(array, i);
      case arrow::Type::INT32: return add_numbers<arrow::Int32Array>(array, i);
      case arrow::Type::INT64: return add_numbers<arrow::Int64Array>(array, i);
      case arrow::Type::UINT8: return add_numbers<arrow::UInt8Array>(array, i);
      case arrow::Type::UINT16: return add_numbers<arrow::UInt16Array>(array, i);
      case arrow::Type::UINT32: return add_numbers<arrow::UInt32Array>(array, i);
      case arrow::Type::UINT64: return add_numbers<arrow::UInt64Array>(array, i);
      case arrow::Type::FLOAT: return add_numbers<arrow::FloatArray>(array, i);
      case arrow::Type::DOUBLE: return add_numbers<arrow::DoubleArray>(array, i);
      case arrow::Type::STRING:
      case arrow::Type::BINARY: return add_texts<arrow::BinaryArray>(array, i);
      case arrow::Type::LARGE_STRING:
      case arrow::Type::LARGE_BINARY: return add_texts<arrow::LargeBinaryArray>(array, i);
      case arrow::Type::STRING_VIEW: return add_texts<arrow::StringViewArray>(array, i);
      case arrow::Type::LIST: return add_list<arrow::ListArray>(array, i);
      case arrow::Type::LARGE_LIST: return add_list<arrow::LargeListArray>(array, i);
      case arrow::Type::FIXED_SIZE_LIST: return add_list<arrow::FixedSizeListArray>(array, i);
      case arrow::Type::MAP: return add_map(static_cast<const arrow::MapArray&>(array), i);
      case arrow::Type::STRUCT: return add_struct(static_cast<const arrow::StructArray&>(array), i);
      case arrow::Type::DICTIONARY: {
        const auto& codes = static_cast<const arrow::DictionaryArray&>(array);
        return add(*codes.dictionary(), codes.GetValueIndex(i));
      }
      default: fail(" is damaged: values of type " + first_line(array.type()->ToString()));
    }
  }

  std::string text_{};
  size_t begin_ = 0;  // of the row
};

class JsonRowColumn : public TextColumn {
 public:
  bool next(std::vector<std::optional<std::string_view>>& values) override {
    values.clear();
    text_.clear();
    std::vector<size_t> ends;
    while (text_.text().size() < kJsonPieceBytes) {
      if (batch_ && at_ < batch_->num_rows()) {
        text_.add_row(*batch_, at_++);
        ends.push_back(text_.text().size());
        continue;
      }
      batch_ = read();
      at_ = 0;
      if (!batch_) break;
      require(batch_->ValidateFull());
    }
    size_t begin = 0;
    for (const size_t end : ends) {
      values.emplace_back(std::string_view(text_.text()).substr(begin, end - begin));
      begin = end;
    }
    return !values.empty();
  }

 protected:
  virtual std::shared_ptr<arrow::RecordBatch> read() = 0;

 private:
  std::shared_ptr<arrow::RecordBatch> batch_{};
  int64_t at_ = 0;  // of its rows, the next
  JsonText text_{};
};

template <typename Names>
std::string list_of(const Names& names) {
  constexpr size_t kMost = 8;
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i)
    list += (i == 0 ? "" : ", ") + quoted(std::string(names[i]));
  return names.size() > kMost ? list + ", ..." : list;
}

// The columns of these names that a schema has.
std::vector<int> columns_in(const arrow::Schema& schema, std::span<const std::string_view> names) {
  std::vector<int> found;
  for (int i = 0; i < schema.num_fields(); ++i) {
    const arrow::Field& field = *schema.field(i);
    if (std::ranges::find(names, field.name()) == names.end()) continue;
    if (!is_writable(*field.type())) {
      fail(": column " + quoted(field.name()) + " has values of type " +
           first_line(field.type()->ToString()).substr(0, 100) +
           "; expected texts, numbers, lists and structs of them");
    }
    found.push_back(i);
  }
  if (found.empty()) {
    fail(" has none of the columns " + list_of(names) + " but " + list_of(schema.field_names()) +
         "; rename its columns, or write its rows as JSON lines");
  }
  return found;
}

class ParquetJsonRows : public JsonRowColumn {
 public:
  ParquetJsonRows(const std::shared_ptr<arrow::io::RandomAccessFile>& file,
                  std::span<const std::string_view> names)
      : file_(open_parquet(file, kJsonRowsAtOnce)) {
    std::shared_ptr<arrow::Schema> schema;
    require(file_->GetSchema(&schema));
    columns_in(*schema, names);
    const parquet::FileMetaData& metadata = *file_->parquet_reader()->metadata();
    std::vector<int> leaves;
    for (int i = 0; i < metadata.schema()->num_columns(); ++i) {
      const std::string& root = metadata.schema()->GetColumnRoot(i)->name();
      if (std::ranges::find(names, root) != names.end()) leaves.push_back(i);
    }
    std::vector<int> groups(static_cast<size_t>(metadata.num_row_groups()));
    std::iota(groups.begin(), groups.end(), 0);
    num_rows_ = metadata.num_rows();
    batches_ = value_of(file_->GetRecordBatchReader(groups, leaves));
    columns_in(*batches_->schema(), names);
  }

  double share_read() const override {
    return num_rows_ > 0 ? static_cast<double>(done_) / static_cast<double>(num_rows_) : 1;
  }

 protected:
  std::shared_ptr<arrow::RecordBatch> read() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    require(batches_->ReadNext(&batch));
    if (batch) done_ += batch->num_rows();
    return batch;
  }

 private:
  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  int64_t num_rows_ = 0, done_ = 0;
};

class ArrowJsonRows : public JsonRowColumn {
 public:
  ArrowJsonRows(const std::shared_ptr<arrow::io::RandomAccessFile>& file,
                std::span<const std::string_view> names) {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = pool();
    options.use_threads = false;
    file_ = value_of(arrow::ipc::RecordBatchFileReader::Open(file, options), ": ");
    options.included_fields = columns_in(*file_->schema(), names);
    file_ = value_of(arrow::ipc::RecordBatchFileReader::Open(file, options), ": ");
    columns_in(*file_->schema(), names);
  }

  double share_read() const override {
    return static_cast<double>(done_) /
           static_cast<double>(std::max(1, file_->num_record_batches()));
  }

 protected:
  std::shared_ptr<arrow::RecordBatch> read() override {
    if (done_ == file_->num_record_batches()) return nullptr;
    return value_of(file_->ReadRecordBatch(done_++));
  }

 private:
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_;
  int done_ = 0;
};

TextColumn* open_rows(const std::shared_ptr<const ByteSource>& source, ColumnFormat format,
                      std::span<const std::string_view> names) {
  const auto file = std::make_shared<SourceFile>(source);
  if (format == ColumnFormat::kParquet)
    return std::make_unique<ParquetJsonRows>(file, names).release();
  return std::make_unique<ArrowJsonRows>(file, names).release();
}

}  // namespace
}  // namespace trireme::dataset

extern "C" __attribute__((visibility("default"))) trireme::dataset::TextColumn*
trireme_open_json_rows(const std::shared_ptr<const trireme::ByteSource>& file,
                       trireme::dataset::ColumnFormat format,
                       std::span<const std::string_view> names) {
  try {
    return trireme::dataset::open_rows(file, format, names);
  } catch (const std::runtime_error&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string(": ") + error.what());
  }
}
