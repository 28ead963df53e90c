// Rows of Parquet and Arrow files with lists and structs, which become lines of JSON. Arrow itself
// writes them.
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/writer.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "trireme/base/error.h"
#include "trireme/base/file/byte_source.h"
#include "trireme/dataset/columns/text_column.h"

extern "C" trireme::dataset::OpenJsonRows trireme_open_json_rows;

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

void require_written(const arrow::Status& status) {
  require(status.ok(), status.ToString().c_str());
}

// messages: list<struct<role, content>>, score: double, label: int64
class NestedTable {
 public:
  explicit NestedTable(Random& random) {
    for (size_t i = 0, count = random.below(300); i < count; ++i) add_row(random);
    const auto finished = [](auto& builder) { return builder.Finish().ValueOrDie(); };
    const auto messages = finished(messages_), score = finished(score_), label = finished(label_);
    table_ = arrow::Table::Make(arrow::schema({arrow::field("messages", messages->type()),
                                               arrow::field("score", arrow::float64()),
                                               arrow::field("label", arrow::int64())}),
                                {messages, score, label});
  }

  const arrow::Table& table() const { return *table_; }
  const std::vector<ordered_json>& rows() const { return rows_; }

 private:
  void add_row(Random& random) {
    ordered_json row = ordered_json::object();
    if (random.one_in(5)) {
      require_written(messages_.AppendNull());
    } else {
      require_written(messages_.Append());
      row["messages"] = ordered_json::array();
      for (size_t k = 0, count = random.below(4); k < count; ++k) add_message(row, random);
    }
    require_written(score_.AppendNull());
    const auto label = static_cast<int64_t>(random.below(1000)) - 500;
    require_written(label_.Append(label));
    row["label"] = label;
    rows_.push_back(std::move(row));
  }

  void add_message(ordered_json& row, Random& random) {
    require_written(message_->Append());
    const std::string role(random.below(6), static_cast<char>(random.below(128)));
    require_written(role_->Append(role));
    ordered_json message = {{"role", role}, {"content", nullptr}};
    if (random.one_in(4)) {
      require_written(content_->AppendNull());
    } else {
      const std::string content(random.below(50), random.one_in(2) ? '"' : '\n');
      require_written(content_->Append(content));
      message["content"] = content;
    }
    row["messages"].push_back(std::move(message));
  }

  std::shared_ptr<arrow::StringBuilder> role_ = std::make_shared<arrow::StringBuilder>();
  std::shared_ptr<arrow::StringBuilder> content_ = std::make_shared<arrow::StringBuilder>();
  std::shared_ptr<arrow::StructBuilder> message_ = std::make_shared<arrow::StructBuilder>(
      arrow::struct_({arrow::field("role", arrow::utf8()), arrow::field("content", arrow::utf8())}),
      arrow::default_memory_pool(),
      std::vector<std::shared_ptr<arrow::ArrayBuilder>>{role_, content_});
  arrow::ListBuilder messages_{arrow::default_memory_pool(), message_};
  arrow::DoubleBuilder score_;
  arrow::Int64Builder label_;
  std::shared_ptr<arrow::Table> table_;
  std::vector<ordered_json> rows_;
};

// A file that is not damaged has the rows that were written.
class NestedRows : public Format {
 public:
  NestedRows(const std::filesystem::path& folder, dataset::ColumnFormat format)
      : path_(folder / "rows.nested"), format_(format) {}
  std::string name() const override {
    return format_ == dataset::ColumnFormat::kParquet ? "parquet-rows" : "arrow-rows";
  }

  void write(Random& random) override {
    const NestedTable table(random);
    rows_ = table.rows();
    const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
    const auto chunk = 1 + static_cast<int64_t>(random.below(200));
    if (format_ == dataset::ColumnFormat::kParquet) {
      parquet::WriterProperties::Builder properties;
      if (random.one_in(2)) properties.disable_dictionary();
      if (random.one_in(2)) properties.enable_page_checksum();
      require_written(parquet::arrow::WriteTable(table.table(), arrow::default_memory_pool(), sink,
                                                 chunk, properties.build()));
    } else {
      const auto writer = arrow::ipc::MakeFileWriter(sink, table.table().schema()).ValueOrDie();
      require_written(writer->WriteTable(table.table(), chunk));
      require_written(writer->Close());
    }
    std::string file = sink->Finish().ValueOrDie()->ToString();
    is_whole_ = random.one_in(4);
    if (!is_whole_) damage_bytes(file, random);
    put_file(path_, file);
  }

  void read() override {
    std::vector<std::string> lines;
    const bool is_read = expect_refusal_or_sense([&] {
      try {
        read_into(lines);
      } catch (const Failure&) {
        throw;
      } catch (const std::exception& error) {  // follows a path, as RowLines has it
        throw ConfigError(concat("rows.nested", error.what()));
      }
    });
    if (!is_whole_) return;
    require(is_read && lines.size() == rows_.size(), "not the rows that were written");
    for (size_t i = 0; i < lines.size(); ++i) {
      const ordered_json row = ordered_json::parse(lines[i], nullptr, false);
      require(row == rows_[i], "another row than was written: " + lines[i]);
    }
  }

 private:
  void read_into(std::vector<std::string>& lines) const {
    constexpr std::string_view kNames[] = {"messages", "score", "label", "missing"};
    const std::unique_ptr<dataset::TextColumn> column(
        trireme_open_json_rows(local_files().open(path_.string()), format_, kNames));
    std::vector<std::optional<std::string_view>> values;
    while (column->next(values)) {
      require(!values.empty(), "no row, but not the end");
      for (const auto& value : values) lines.emplace_back(value.value());
      require(lines.size() < kMostRows, "more rows than the file can have");
    }
  }

  // Damage may repeat batches, but not this often.
  static constexpr size_t kMostRows = 1'000'000;

  std::filesystem::path path_;
  dataset::ColumnFormat format_;
  std::vector<ordered_json> rows_{};
  bool is_whole_ = true;
};

}  // namespace

void add_nested_formats(Formats& formats, const std::filesystem::path& folder) {
  for (const auto format : {dataset::ColumnFormat::kParquet, dataset::ColumnFormat::kArrow})
    formats.push_back(std::make_unique<NestedRows>(folder, format));
}

}  // namespace trireme::hostile
