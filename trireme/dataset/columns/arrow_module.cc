// The module that reads columns with Apache Arrow's C++ libraries, those of the pyarrow wheel.
// Its messages follow a path.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/ipc/reader.h>
#include <parquet/arrow/reader.h>
#include <parquet/column_reader.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/schema.h>

#include "trireme/dataset/columns/arrow_parts.h"
#include "trireme/dataset/columns/text_column.h"

namespace trireme::dataset {
namespace {

using namespace arrow_parts;

using Values = std::vector<std::optional<std::string_view>>;

// At once, of a page.
constexpr int64_t kRowsAtOnce = 1024;
constexpr size_t kMostNames = 8;  // in a message

constexpr const char* kAdvice = "; name the column that has the text with --text-key";

[[noreturn]] void fail_without(const std::string& name, const std::vector<std::string>& names) {
  std::string list;
  for (size_t i = 0; i < std::min(names.size(), kMostNames); ++i)
    list += (i == 0 ? "" : ", ") + quoted(names[i]);
  if (names.size() > kMostNames) list += ", ...";
  fail(" has no column " + quoted(name) + (list.empty() ? "" : " but " + list) + kAdvice);
}

// The type of the field that a path with dots leads to, through structs; null without one.
// path: becomes the index of each field on it
std::shared_ptr<arrow::DataType> type_at(const arrow::FieldVector& fields, const std::string& name,
                                         std::vector<int>& path) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (fields[i]->name() != name) continue;
    path.push_back(static_cast<int>(i));
    return fields[i]->type();
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const std::string prefix = fields[i]->name() + ".";
    if (!name.starts_with(prefix) || fields[i]->type()->id() != arrow::Type::STRUCT) continue;
    path.push_back(static_cast<int>(i));
    if (auto type = type_at(fields[i]->type()->fields(), name.substr(prefix.size()), path))
      return type;
    path.pop_back();
  }
  return nullptr;
}

bool is_text(const arrow::DataType& type) {
  return arrow::is_base_binary_like(type.id()) || arrow::is_binary_view_like(type.id());
}

void require_text(const std::string& name, const arrow::DataType& type) {
  const bool has_words = type.id() == arrow::Type::DICTIONARY &&
                         is_text(*static_cast<const arrow::DictionaryType&>(type).value_type());
  if (!is_text(type) && !has_words)
    fail(": column " + quoted(name) + " has values of type " + first_line(type.ToString()) +
         "; expected texts" + kAdvice);
}

// The path to a column in a schema; it has texts.
std::vector<int> find_text(const arrow::Schema& schema, const std::string& name) {
  std::vector<int> path;
  const auto type = type_at(schema.fields(), name, path);
  if (!type) fail_without(name, schema.field_names());
  require_text(name, *type);
  return path;
}

// The same bytes, not checked to be UTF-8: a row that is not is for the caller to refuse.
std::shared_ptr<arrow::Array> as_bytes(const arrow::Array& texts) {
  const auto data = texts.data()->Copy();
  switch (texts.type_id()) {
    case arrow::Type::STRING: data->type = arrow::binary(); break;
    case arrow::Type::LARGE_STRING: data->type = arrow::large_binary(); break;
    case arrow::Type::STRING_VIEW: data->type = arrow::binary_view(); break;
    default: break;
  }
  return arrow::MakeArray(data);
}

template <typename ArrayType>
void append_of(const arrow::Array& array, Values& values) {
  const auto& texts = static_cast<const ArrayType&>(array);
  for (int64_t i = 0; i < texts.length(); ++i) {
    if (texts.IsNull(i)) {
      values.emplace_back();
    } else {
      values.emplace_back(texts.GetView(i));
    }
  }
}

// Checks every offset before it follows one. Returns what the values lie in.
std::shared_ptr<arrow::Array> append_texts(const arrow::Array& texts, Values& values) {
  const std::shared_ptr<arrow::Array> bytes = as_bytes(texts);
  require(bytes->ValidateFull());
  switch (bytes->type_id()) {
    case arrow::Type::BINARY: append_of<arrow::BinaryArray>(*bytes, values); break;
    case arrow::Type::LARGE_BINARY: append_of<arrow::LargeBinaryArray>(*bytes, values); break;
    case arrow::Type::BINARY_VIEW: append_of<arrow::BinaryViewArray>(*bytes, values); break;
    default: fail(" is damaged: values of type " + bytes->type()->ToString());
  }
  return bytes;
}

// The words of the last dictionary: batches share one, and a batch may be much smaller.
class Words {
 public:
  void append(const arrow::DictionaryArray& codes, Values& values) {
    require(codes.indices()->ValidateFull());
    const std::shared_ptr<arrow::Array>& dictionary = codes.dictionary();
    if (dictionary->data() != data_) {
      words_.clear();
      bytes_ = append_texts(*dictionary, words_);
      data_ = dictionary->data();
    }
    for (int64_t i = 0; i < codes.length(); ++i) {
      if (codes.IsNull(i)) {
        values.emplace_back();
        continue;
      }
      const int64_t code = codes.GetValueIndex(i);
      if (code < 0 || code >= std::ssize(words_))
        fail(" is damaged: a code outside its dictionary");
      values.push_back(words_[static_cast<size_t>(code)]);
    }
  }

 private:
  std::shared_ptr<arrow::ArrayData> data_{};  // kept, so that no other has its address
  std::shared_ptr<arrow::Array> bytes_{};
  Values words_{};
};

// Columns of record batches, at the end of a path through structs.
class BatchColumn : public TextColumn {
 public:
  bool next(Values& values) override {
    values.clear();
    while (values.empty()) {
      const std::shared_ptr<arrow::RecordBatch> batch = read();
      if (!batch) return false;
      require(batch->Validate());
      if (path_.empty() || path_.front() >= batch->num_columns())
        fail(" is damaged: a column less");
      std::shared_ptr<arrow::Array> array = batch->column(path_.front());
      std::vector<std::shared_ptr<arrow::Array>> parents;
      for (size_t i = 1; i < path_.size(); ++i) {
        if (array->type_id() != arrow::Type::STRUCT) fail(" is damaged: a struct less");
        require(array->Validate());
        parents.push_back(array);
        array = static_cast<const arrow::StructArray&>(*array).field(path_[i]);
      }
      if (array->type_id() == arrow::Type::DICTIONARY) {
        words_.append(static_cast<const arrow::DictionaryArray&>(*array), values);
      } else {
        bytes_ = append_texts(*array, values);
      }
      for (const auto& parent : parents) {  // a null has no parts
        for (int64_t i = 0; i < parent->length(); ++i)
          if (parent->IsNull(i)) values.at(static_cast<size_t>(i)).reset();
      }
    }
    return true;
  }

 protected:
  // The next batch, or none.
  virtual std::shared_ptr<arrow::RecordBatch> read() = 0;

  std::vector<int> path_{};

 private:
  std::shared_ptr<arrow::Array> bytes_{};  // of the last values
  Words words_{};
};

// Values lie in the page that was read last, or in the dictionary of their chunk: none is copied.
class ParquetColumn : public TextColumn {
 public:
  ParquetColumn(const std::shared_ptr<arrow::io::RandomAccessFile>& file, const std::string& name) {
    file_ = open_parquet(file, kRowsAtOnce);
    std::shared_ptr<arrow::Schema> schema;
    require(file_->GetSchema(&schema));
    find_text(*schema, name);
    const parquet::FileMetaData& metadata = *file_->parquet_reader()->metadata();
    leaf_ = metadata.schema()->ColumnIndex(name);
    if (leaf_ < 0) fail_without(name, schema->field_names());
    const parquet::ColumnDescriptor& column = *metadata.schema()->Column(leaf_);
    if (column.physical_type() != parquet::Type::BYTE_ARRAY || column.max_repetition_level() > 0)
      fail(" is damaged: column " + quoted(name) + " is stored as no texts");
    level_of_text_ = column.max_definition_level();
    num_rows_ = metadata.num_rows();
    num_groups_ = metadata.num_row_groups();
  }

  bool next(Values& values) override {
    values.clear();
    while (values.empty()) {
      if (!chunk_ && group_ == num_groups_) return false;
      require(read(values));
    }
    done_ += std::ssize(values);
    return true;
  }

  double share_read() const override {
    return num_rows_ > 0 ? static_cast<double>(done_) / static_cast<double>(num_rows_) : 1;
  }

 private:
  // Rows of a page, or none at the end of a row group.
  arrow::Status read(Values& values) {
    BEGIN_PARQUET_CATCH_EXCEPTIONS
    if (!chunk_) {
      const auto group = file_->parquet_reader()->RowGroup(group_++);
      rows_left_ = group->metadata()->num_rows();
      chunk_ = std::static_pointer_cast<parquet::ByteArrayReader>(group->Column(leaf_));
    }
    if (!chunk_->HasNext()) {
      chunk_.reset();
      if (rows_left_ == 0) return arrow::Status::OK();
      return arrow::Status::Invalid("row group ", group_ - 1, " ends ", rows_left_,
                                    " rows too early");
    }
    int64_t num_texts = 0;
    const int64_t count =
        chunk_->ReadBatch(kRowsAtOnce, levels_.data(), nullptr, texts_.data(), &num_texts);
    rows_left_ -= count;
    if (count == 0 || rows_left_ < 0)
      return arrow::Status::Invalid("row group ", group_ - 1, " has another number of rows");
    append(values, count, num_texts);
    END_PARQUET_CATCH_EXCEPTIONS
    return arrow::Status::OK();
  }

  void append(Values& values, int64_t count, int64_t num_texts) {
    int64_t next = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (level_of_text_ > 0 && levels_[static_cast<size_t>(i)] != level_of_text_) {
        values.emplace_back();
        continue;
      }
      if (next == num_texts) break;
      const parquet::ByteArray& text = texts_[static_cast<size_t>(next++)];
      values.emplace_back(std::string_view(reinterpret_cast<const char*>(text.ptr), text.len));
    }
    if (next != num_texts || std::ssize(values) != count)
      throw parquet::ParquetException("a page has another number of values");
  }

  std::unique_ptr<parquet::arrow::FileReader> file_;
  std::shared_ptr<parquet::ByteArrayReader> chunk_{};  // of the row group in front of group_
  std::vector<int16_t> levels_ = std::vector<int16_t>(kRowsAtOnce);
  std::vector<parquet::ByteArray> texts_ = std::vector<parquet::ByteArray>(kRowsAtOnce);
  int leaf_ = 0;
  int16_t level_of_text_ = 0;  // below it, a row is null
  int group_ = 0, num_groups_ = 0;
  int64_t rows_left_ = 0;  // of the row group
  int64_t num_rows_ = 0, done_ = 0;
};

// Batches of an IPC file, or of a stream. Each is read whole.
class ArrowColumn : public BatchColumn {
 public:
  ArrowColumn(std::shared_ptr<arrow::io::RandomAccessFile> file, bool is_file,
              const std::string& name)
      : input_(std::move(file)), num_bytes_(value_of(input_->GetSize(), ": ")) {
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.memory_pool = pool();
    options.use_threads = false;
    if (is_file) {
      file_ = value_of(arrow::ipc::RecordBatchFileReader::Open(input_, options), ": ");
      options.included_fields = {find_text(*file_->schema(), name).front()};
      file_ = value_of(arrow::ipc::RecordBatchFileReader::Open(input_, options), ": ");
      path_ = find_text(*file_->schema(), name);
    } else {
      stream_ = value_of(arrow::ipc::RecordBatchStreamReader::Open(input_, options), ": ");
      path_ = find_text(*stream_->schema(), name);
    }
  }

  double share_read() const override {
    if (file_) {
      return static_cast<double>(done_) /
             static_cast<double>(std::max(1, file_->num_record_batches()));
    }
    return static_cast<double>(input_->Tell().ValueOr(0)) / static_cast<double>(num_bytes_);
  }

 protected:
  std::shared_ptr<arrow::RecordBatch> read() override {
    if (file_) {
      if (done_ == file_->num_record_batches()) return nullptr;
      return value_of(file_->ReadRecordBatch(done_++));
    }
    std::shared_ptr<arrow::RecordBatch> batch;
    require(stream_->ReadNext(&batch));
    return batch;
  }

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> input_;
  int64_t num_bytes_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> stream_;
  int done_ = 0;
};

TextColumn* open(const std::shared_ptr<const ByteSource>& source, ColumnFormat format,
                 const char* name) {
  const auto file = std::make_shared<SourceFile>(source);
  const auto head = value_of(file->ReadAt(0, 8), ": ");
  require(file->Seek(0), ": ");
  const std::string_view magic(*head);
  const bool is_parquet = magic.starts_with("PAR1") || magic.starts_with("PARE");
  const bool is_arrow_file = magic.starts_with("ARROW1");
  if (format == ColumnFormat::kParquet) {
    if (!is_parquet) fail(" is no Parquet file: it does not begin with PAR1");
    return std::make_unique<ParquetColumn>(file, name).release();
  }
  if (is_parquet) fail(" is a Parquet file; read it with --format parquet");
  // A stream has no name: its first message begins with its length, behind a mark since 0.15.
  if (!is_arrow_file && !magic.starts_with("\xff\xff\xff\xff"))
    fail(" is no Arrow file: it begins neither with ARROW1 nor with a message of a stream");
  return std::make_unique<ArrowColumn>(file, is_arrow_file, name).release();
}

}  // namespace
}  // namespace trireme::dataset

extern "C" __attribute__((visibility("default"))) trireme::dataset::TextColumn*
trireme_open_text_column(const std::shared_ptr<const trireme::ByteSource>& file,
                         trireme::dataset::ColumnFormat format, const char* name) {
  try {
    return trireme::dataset::open(file, format, name);
  } catch (const std::runtime_error&) {
    throw;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string(": ") + error.what());
  }
}
