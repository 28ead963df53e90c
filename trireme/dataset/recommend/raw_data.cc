#include "trireme/dataset/recommend/raw_data.h"

#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/text_lines.h"
#include "trireme/dataset/recommend/dictionary.h"

namespace trireme::dataset {
namespace {

constexpr int64_t kMaxValues = 64;

class Pairs : public RawData {
 public:
  explicit Pairs(const std::vector<std::string>& paths) : paths_(paths) {
    for (const std::string& path : paths_) {
      TextLines lines(path);
      num_bytes_ += lines.num_bytes();
      std::string_view line;
      lines.next(line);
      if (columns_.empty()) {
        header_ = line;
        read_header(lines);
      }
      TRIREME_CHECK(line == header_, lines.where(), " is \"", shown(line), "\"; expected \"",
                    shown(header_), "\", as in ", paths_.front());
    }
  }

  const FeatureSchema& schema() const override { return schema_; }
  int64_t num_bytes() const override { return num_bytes_; }

  void read(RawVisitor& visitor) const override {
    RawSample sample;
    Categories item(static_cast<size_t>(schema_.num_tables(TableSide::kItem)));
    sample.categories.resize(static_cast<size_t>(schema_.num_tables(TableSide::kQuery)));
    std::vector<std::string_view> fields;
    for (const std::string& path : paths_) {
      TextLines lines(path);
      std::string_view line;
      lines.next(line);  // the header
      int64_t seen = 0;
      for (; lines.next(line); ++sample.group) {
        split_fields(line, '\t', fields);
        TRIREME_CHECK(fields.size() == columns_.size(), lines.where(), " has ", fields.size(),
                      " columns; expected ", columns_.size(), ", as in its first line");
        for (size_t c = 0; c < columns_.size(); ++c) {
          const Column& column = columns_[c];
          auto& values = column.side == TableSide::kQuery ? sample.categories[column.table]
                                                          : item[column.table];
          read_values(lines, c, fields[c], values);
        }
        sample.item = fields[key_column_];
        visitor.on_item(sample.item, item);
        visitor.on_sample(sample);
        visitor.on_bytes(lines.num_read() - std::exchange(seen, lines.num_read()));
      }
    }
  }

 private:
  struct Column {
    std::string name;
    TableSide side = TableSide::kQuery;
    bool is_list = false;
    size_t table = 0;  // among those of its side
  };

  void read_header(const TextLines& lines) {
    std::vector<std::string_view> names;
    split_fields(header_, '\t', names);
    for (const std::string_view name : names) {
      Column column{.name = std::string(name), .is_list = name.ends_with('*')};
      if (column.is_list) column.name.pop_back();
      const bool is_item = column.name == "item" || column.name.starts_with("item.");
      TRIREME_CHECK(is_item || column.name == "query" || column.name.starts_with("query."),
                    lines.where(), ": column ", columns_.size() + 1, " is named \"", shown(name),
                    "\"; expected query, item, query.NAME or item.NAME");
      column.side = is_item ? TableSide::kItem : TableSide::kQuery;
      columns_.push_back(std::move(column));
    }
    for (const TableSide side : {TableSide::kQuery, TableSide::kItem}) {
      size_t table = 0;
      for (Column& column : columns_) {
        if (column.side != side) continue;
        column.table = table++;
        schema_.tables.push_back({.name = column.name,
                                  .min_ids = column.is_list ? 0 : 1,
                                  .max_ids = column.is_list ? kMaxValues : 1,
                                  .side = side});
      }
      TRIREME_CHECK(table > 0, lines.where(), " names no column of ",
                    side == TableSide::kItem ? "items" : "queries",
                    "; expected query and item, separated by tabs");
    }
    key_column_ = static_cast<size_t>(std::ranges::find(columns_, TableSide::kItem, &Column::side) -
                                      columns_.begin());
    TRIREME_CHECK(!columns_[key_column_].is_list, lines.where(), ": \"",
                  shown(columns_[key_column_].name),
                  "*\" is the first column of items; expected one without *, which says which item "
                  "it is");
  }

  void read_values(const TextLines& lines, size_t c, std::string_view field,
                   std::vector<std::string_view>& values) const {
    const Column& column = columns_[c];
    values.clear();
    if (!column.is_list) {
      values.push_back(field);
    } else if (!field.empty()) {
      split_fields(field, '|', values);
    }
    const auto place = [&] {
      return concat(lines.where(), ": column ", c + 1, " (", shown(column.name), ")");
    };
    TRIREME_CHECK(std::ssize(values) <= kMaxValues, place(), " has ", values.size(),
                  " values; expected at most ", kMaxValues);
    for (const std::string_view value : values) {
      TRIREME_CHECK(value.size() <= TextNumbers::kMaxTextBytes, place(), " has a value of ",
                    value.size(), " bytes; expected at most ", TextNumbers::kMaxTextBytes);
    }
  }

  std::vector<std::string> paths_;
  std::string header_;
  std::vector<Column> columns_;
  size_t key_column_ = 0;
  FeatureSchema schema_;
  int64_t num_bytes_ = 0;
};

}  // namespace

std::unique_ptr<RawData> open_pairs(const std::vector<std::string>& paths) {
  return std::make_unique<Pairs>(paths);
}

}  // namespace trireme::dataset
