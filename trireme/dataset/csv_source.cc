#include "trireme/dataset/csv_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/shown.h"
#include "trireme/dataset/as_config_error.h"

namespace trireme::dataset {
namespace {

constexpr size_t kMostColumns = size_t{1} << 16;

struct Row {
  int64_t line = 0;  // where it begins
  std::vector<std::string> cells{};
};

// Cuts a text into rows. A cell in double quotes may hold separators, line ends and doubled quotes.
class Reader {
 public:
  Reader(std::string_view text, char separator, std::string path)
      : text_(text), separator_(separator), path_(std::move(path)) {
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
  }

  // False at the end. Skips empty lines.
  bool next(Row& row) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) skip_line_end();
    if (at_ >= text_.size()) return false;
    row.line = line_;
    row.cells.clear();
    while (true) {
      row.cells.push_back(cell());
      TRIREME_CHECK(row.cells.size() <= kMostColumns, path_, ":", row.line, ": more than ",
                    kMostColumns, " cells; expected a table");
      if (at_ >= text_.size()) return true;
      if (text_[at_] != separator_) break;
      ++at_;
    }
    skip_line_end();
    return true;
  }

 private:
  void skip_line_end() {
    if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
    ++at_;
    ++line_;
  }

  bool ends_cell(char c) const { return c == separator_ || c == '\n' || c == '\r'; }

  std::string cell() {
    if (at_ >= text_.size() || text_[at_] != '"') {
      const size_t begin = at_;
      while (at_ < text_.size() && !ends_cell(text_[at_])) ++at_;
      return std::string(text_.substr(begin, at_ - begin));
    }
    const int64_t begin_line = line_;
    std::string value;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '\n') ++line_;
      if (text_[at_] != '"') {
        value += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        value += text_[at_++];
      } else {
        ++at_;
        TRIREME_CHECK(at_ >= text_.size() || ends_cell(text_[at_]), path_, ":", line_,
                      ": text after a closing quote; double the quotes inside a cell");
        return value;
      }
    }
    throw ConfigError(concat(path_, ":", begin_line, ": a quote is not closed"));
  }

  std::string_view text_;
  char separator_;
  std::string path_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::vector<std::string> sorted_names(const std::vector<Row>& rows, size_t column) {
  std::set<std::string> names;
  for (const Row& row : rows) names.insert(row.cells[column]);
  return {names.begin(), names.end()};
}

bool is_of_numbers(const std::vector<Row>& rows, size_t column) {
  return std::ranges::all_of(
      rows, [&](const Row& row) { return parse_number(row.cells[column]).has_value(); });
}

// The place of a cell in the file, for messages.
struct Place {
  const std::string& path;
  const Row& row;
  const std::string& column;
  size_t index;
  const std::string& text() const { return row.cells[index]; }
  std::string where() const { return concat(path, ":", row.line, ": ", shown(column)); }
};

float number_at(const Place& place) {
  const std::optional<double> value = parse_number(place.text());
  TRIREME_CHECK(value && std::isfinite(static_cast<float>(*value)), place.where(), " is \"",
                shown(place.text()), "\"; expected a finite number");
  return static_cast<float>(*value);
}

int64_t category_at(const Place& place, const std::vector<std::string>& categories) {
  const auto found = std::ranges::lower_bound(categories, place.text());
  TRIREME_CHECK(found != categories.end() && *found == place.text(), place.where(), " is \"",
                shown(place.text()), "\", which the training data does not have");
  return found - categories.begin();
}

std::vector<Row> read_rows(Reader& reader, const Row& header, const std::string& path) {
  std::vector<Row> rows;
  for (Row row; reader.next(row);) {
    TRIREME_CHECK(row.cells.size() == header.cells.size(), path, ":", row.line, " has ",
                  row.cells.size(), " cells; expected ", header.cells.size(),
                  ", as in its first line");
    for (size_t i = 0; i < row.cells.size(); ++i) {
      TRIREME_CHECK(!row.cells[i].empty(), path, ":", row.line, ": ", shown(header.cells[i]),
                    " is empty; fill the cell or leave the row out");
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

CsvSource::CsvSource(const std::filesystem::path& path, const CsvOptions& options,
                     const CsvSource* like) {
  const std::string name = path.string();
  const std::string text = as_config_error([&] { return read_file(path, options.max_bytes); });
  Reader reader(text, options.separator, name);
  Row header;
  TRIREME_CHECK(reader.next(header), name, " is empty; expected a line of column names");
  const auto target = std::ranges::find(header.cells, options.target);
  TRIREME_CHECK(target != header.cells.end(), name, " has no column \"", shown(options.target),
                "\"; expected it among the names in its first line");
  const auto target_index = static_cast<size_t>(target - header.cells.begin());
  const std::vector<Row> rows = read_rows(reader, header, name);
  TRIREME_CHECK(!rows.empty(), name, " has no rows below its column names");
  num_rows_ = std::ssize(rows);

  if (like != nullptr) {
    numbers_ = like->numbers_;
    categories_ = like->categories_;
    const auto find = [&](Column& column) {
      const auto found = std::ranges::find(header.cells, column.name);
      TRIREME_CHECK(found != header.cells.end(), name, " has no column \"", shown(column.name),
                    "\", which the training data has");
      column.index = static_cast<size_t>(found - header.cells.begin());
    };
    std::ranges::for_each(numbers_, find);
    std::ranges::for_each(categories_, find);
  } else {
    for (size_t i = 0; i < header.cells.size(); ++i) {
      if (i == target_index) continue;
      Column column{.name = header.cells[i], .index = i};
      const bool has_numbers = is_of_numbers(rows, i);
      if (!has_numbers) column.categories = sorted_names(rows, i);
      (has_numbers ? numbers_ : categories_).push_back(std::move(column));
    }
  }
  if (options.is_class)
    classes_ = like != nullptr ? like->classes_ : sorted_names(rows, target_index);

  for (const Row& row : rows) {
    for (const Column& column : numbers_) {
      values_.push_back(number_at({name, row, column.name, column.index}));
    }
    for (const Column& column : categories_) {
      codes_.push_back(category_at({name, row, column.name, column.index}, column.categories));
    }
    const Place place{name, row, options.target, target_index};
    if (options.is_class) {
      target_class_.push_back(category_at(place, classes_));
    } else {
      target_value_.push_back(number_at(place));
    }
  }
}

NamedTensors CsvSource::get(int64_t index, std::optional<RandomKey> /*augmentation*/) const {
  TRIREME_ASSERT(index >= 0 && index < num_rows_, "row ", index, " of ", num_rows_);
  const auto copy = [index](const auto& all, int64_t width, at::ScalarType dtype) {
    at::Tensor row = at::empty({width}, dtype);
    std::copy_n(all.begin() + index * width, width,
                row.mutable_data_ptr<typename std::decay_t<decltype(all)>::value_type>());
    return row;
  };
  NamedTensors sample = {{"x", copy(values_, num_numbers(), at::kFloat)}};
  if (!categories_.empty()) {
    sample.emplace_back("categories", copy(codes_, std::ssize(categories_), at::kLong));
  }
  const bool is_class = !target_class_.empty();
  const at::Tensor y = at::empty({}, is_class ? at::kLong : at::kFloat);
  const auto at = static_cast<size_t>(index);
  if (is_class) {
    *y.mutable_data_ptr<int64_t>() = target_class_[at];
  } else {
    *y.mutable_data_ptr<float>() = target_value_[at];
  }
  sample.emplace_back("y", y);
  return sample;
}

std::vector<int64_t> CsvSource::category_sizes() const {
  std::vector<int64_t> sizes;
  for (const Column& column : categories_) sizes.push_back(std::ssize(column.categories));
  return sizes;
}

}  // namespace trireme::dataset
