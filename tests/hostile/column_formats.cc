// Columns of Parquet and Arrow files whose rows become documents. Arrow itself writes them.
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/dataset/columns/text_column.h"

extern "C" trireme::dataset::OpenTextColumn trireme_open_text_column;

namespace trireme::hostile {
namespace {

using Texts = std::vector<std::optional<std::string>>;

void require_ok(const arrow::Status& status) { require(status.ok(), status.ToString().c_str()); }

template <typename Builder>
std::shared_ptr<arrow::Array> array_of(const Texts& texts, Builder& builder) {
  for (const auto& text : texts) require_ok(text ? builder.Append(*text) : builder.AppendNull());
  return builder.Finish().ValueOrDie();
}

// One of the types that a column of texts may have. Arrow does not write views into the pages of
// Parquet.
std::shared_ptr<arrow::Array> some_array(const Texts& texts, bool has_views, Random& random) {
  arrow::StringBuilder string;
  arrow::LargeStringBuilder large;
  arrow::BinaryBuilder binary;
  arrow::StringViewBuilder view;
  arrow::StringDictionaryBuilder words;
  switch (random.below(has_views ? 5 : 4)) {
    case 0: return array_of(texts, string);
    case 1: return array_of(texts, large);
    case 2: return array_of(texts, binary);
    case 3: return array_of(texts, words);
    default: return array_of(texts, view);
  }
}

// A file that is not damaged has the values that were written.
class Columns : public Format {
 public:
  Columns(const std::filesystem::path& folder, dataset::ColumnFormat format)
      : path_(folder / "rows.column"), format_(format) {}
  std::string name() const override {
    return format_ == dataset::ColumnFormat::kParquet ? "parquet" : "arrow";
  }

  void write(Random& random) override {
    texts_.clear();
    for (size_t i = 0, count = random.below(600); i < count; ++i) {
      texts_.emplace_back(std::string(random.below(40), static_cast<char>('a' + random.below(3))));
      if (random.one_in(6)) texts_.back().reset();
    }
    std::shared_ptr<arrow::Array> column =
        some_array(texts_, format_ == dataset::ColumnFormat::kArrow, random);
    name_ = "text";
    if (random.one_in(3)) {
      name_ = "data.text";
      column = arrow::StructArray::Make({column}, std::vector<std::string>{"text"}).ValueOrDie();
    }
    arrow::Int64Builder numbers;
    for (size_t i = 0; i < texts_.size(); ++i) require_ok(numbers.Append(static_cast<int64_t>(i)));
    const auto id = numbers.Finish().ValueOrDie();
    const auto schema = arrow::schema(
        {arrow::field("id", id->type()), arrow::field(name_.substr(0, 4), column->type())});
    const auto table = arrow::Table::Make(schema, {id, column});
    std::string file = format_ == dataset::ColumnFormat::kParquet ? parquet_of(*table, random)
                                                                  : arrow_of(*table, random);
    is_whole_ = random.one_in(4);
    if (!is_whole_) damage_bytes(file, random);
    put_file(path_, file);
  }

  void read() override {
    Texts found;
    const bool is_read = expect_refusal_or_sense([&] {
      try {
        read_into(found);
      } catch (const Failure&) {
        throw;
      } catch (const std::exception& error) {  // follows a path, as ColumnRows has it
        throw ConfigError(concat("rows.column", error.what()));
      }
    });
    if (is_whole_) require(is_read && found == texts_, "other texts than those written");
  }

 private:
  static std::string parquet_of(const arrow::Table& table, Random& random) {
    parquet::WriterProperties::Builder properties;
    constexpr arrow::Compression::type kCodecs[] = {
        arrow::Compression::UNCOMPRESSED, arrow::Compression::SNAPPY, arrow::Compression::GZIP,
        arrow::Compression::ZSTD, arrow::Compression::LZ4};
    properties.compression(random.pick(kCodecs));
    if (random.one_in(2)) properties.disable_dictionary();
    if (random.one_in(2)) properties.data_page_version(parquet::ParquetDataPageVersion::V2);
    if (random.one_in(2)) properties.enable_page_checksum();
    properties.data_pagesize(1 + static_cast<int64_t>(random.below(4000)));
    parquet::ArrowWriterProperties::Builder of_arrow;
    if (random.one_in(2)) of_arrow.store_schema();
    const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
    require_ok(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), sink,
                                          1 + static_cast<int64_t>(random.below(400)),
                                          properties.build(), of_arrow.build()));
    return sink->Finish().ValueOrDie()->ToString();
  }

  static std::string arrow_of(const arrow::Table& table, Random& random) {
    auto options = arrow::ipc::IpcWriteOptions::Defaults();
    options.unify_dictionaries = true;
    if (random.one_in(3))
      options.codec = arrow::util::Codec::Create(arrow::Compression::ZSTD).ValueOrDie();
    const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
    const auto writer =
        (random.one_in(2) ? arrow::ipc::MakeFileWriter(sink, table.schema(), options)
                          : arrow::ipc::MakeStreamWriter(sink, table.schema(), options))
            .ValueOrDie();
    require_ok(writer->WriteTable(table, 1 + static_cast<int64_t>(random.below(400))));
    require_ok(writer->Close());
    return sink->Finish().ValueOrDie()->ToString();
  }

  void read_into(Texts& found) const {
    const std::unique_ptr<dataset::TextColumn> column(
        trireme_open_text_column(local_files().open(path_.string()), format_, name_.c_str()));
    std::vector<std::optional<std::string_view>> values;
    while (column->next(values)) {
      require(!values.empty(), "no row, but not the end");
      for (const auto& value : values) found.emplace_back(value);
      require(found.size() < kMostRows, "more rows than the file can have");
    }
  }

  // Damage may repeat batches, but not this often.
  static constexpr size_t kMostRows = 1'000'000;

  std::filesystem::path path_;
  dataset::ColumnFormat format_;
  std::string name_{};
  Texts texts_{};
  bool is_whole_ = true;
};

}  // namespace

void add_column_formats(Formats& formats, const std::filesystem::path& folder) {
  for (const auto format : {dataset::ColumnFormat::kParquet, dataset::ColumnFormat::kArrow})
    formats.push_back(std::make_unique<Columns>(folder, format));
}

}  // namespace trireme::hostile
