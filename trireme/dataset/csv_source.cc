#include "trireme/dataset/csv_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <functional>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/as_config_error.h"

namespace trireme::dataset {

// The text is cut into rows three times, because no row is kept: cells as strings took 25 times the
// memory of the file. The first pass finds the columns of numbers, which are known only at the end,
// as every cell must be one. The second collects the names of categories, and the third the values.
// Names are sorted, so that a category's number does not depend on the order of rows. A validation
// file takes columns and categories from the training's and may not bring its own.

namespace {

constexpr size_t kMostColumns = size_t{1} << 16;

struct Row {
  int64_t line = 0;                       // where it begins
  std::vector<std::string_view> cells{};  // valid until the reader's next row
};

// Cuts a text into rows. A cell in double quotes may hold separators, line ends and doubled quotes.
// Keeps no rows: as strings they take many times the memory of the text.
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
    unquoted_.clear();
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

  std::string_view cell() {
    if (at_ >= text_.size() || text_[at_] != '"') {
      const size_t begin = at_;
      while (at_ < text_.size() && !ends_cell(text_[at_])) ++at_;
      return text_.substr(begin, at_ - begin);
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
        return unquoted_.emplace_back(std::move(value));
      }
    }
    throw ConfigError(concat(path_, ":", begin_line, ": a quote is not closed"));
  }

  std::string_view text_;
  char separator_;
  std::string path_;
  size_t at_ = 0;
  int64_t line_ = 1;
  std::deque<std::string> unquoted_;  // cells of the row, whose addresses stay
};

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

using Names = std::set<std::string, std::less<>>;

void add_name(std::string_view name, Names& names) {
  if (!names.contains(name)) names.emplace(name);
}

std::vector<std::string> sorted(Names names) {
  std::vector<std::string> all;
  all.reserve(names.size());
  while (!names.empty()) all.push_back(std::move(names.extract(names.begin()).value()));
  return all;
}

// The place of a cell in the file, for messages.
struct Place {
  const std::string& path;
  const Row& row;
  const std::string& column;
  size_t index;
  std::string_view text() const { return row.cells[index]; }
  std::string where() const { return concat(path, ":", row.line, ": ", shown(column)); }
};

float number_at(const Place& place) {
  const std::optional<double> value = parse_number(place.text());
  TRIREME_CHECK(value && std::isfinite(static_cast<float>(*value)), place.where(), " is \"",
                shown(place.text()), "\"; expected a finite number");
  return static_cast<float>(*value);
}

int32_t category_at(const Place& place, const std::vector<std::string>& categories) {
  const auto found = std::ranges::lower_bound(categories, place.text(), std::less<>());
  TRIREME_CHECK(found != categories.end() && *found == place.text(), place.where(), " is \"",
                shown(place.text()), "\", which the training data does not have");
  return static_cast<int32_t>(found - categories.begin());
}

void check_row(const Row& row, const std::vector<std::string>& header, const std::string& path) {
  TRIREME_CHECK(row.cells.size() == header.size(), path, ":", row.line, " has ", row.cells.size(),
                " cells; expected ", header.size(), ", as in its first line");
  for (size_t i = 0; i < row.cells.size(); ++i) {
    TRIREME_CHECK(!row.cells[i].empty(), path, ":", row.line, ": ", shown(header[i]),
                  " is empty; fill the cell or leave the row out");
  }
}

// A survey of a table: its rows, its non-numeric columns, and the names in them.
struct Survey {
  int64_t num_rows = 0;
  std::vector<bool> is_category;
  std::vector<std::vector<std::string>> names;
};

// Reads the rows twice: before the end, a column of numbers is not known to be one.
// target: a column whose names are wanted whatever they are, if any
Survey survey(const Reader& below_header, const std::vector<std::string>& header,
              const std::string& path, std::optional<size_t> target) {
  Survey found{.is_category = std::vector<bool>(header.size())};
  Row row;
  for (Reader reader = below_header; reader.next(row); ++found.num_rows) {
    check_row(row, header, path);
    for (size_t i = 0; i < header.size(); ++i) {
      if (!found.is_category[i]) found.is_category[i] = !parse_number(row.cells[i]);
    }
  }
  std::vector<Names> names(header.size());
  for (Reader reader = below_header; reader.next(row);) {
    for (size_t i = 0; i < header.size(); ++i) {
      if (found.is_category[i] || i == target) add_name(row.cells[i], names[i]);
    }
  }
  for (Names& of_column : names) found.names.push_back(sorted(std::move(of_column)));
  return found;
}

}  // namespace

CsvSource::CsvSource(const std::filesystem::path& path, const CsvOptions& options,
                     const CsvSource* like) {
  const std::string name = path.string();
  const std::string text = as_config_error([&] { return read_file(path, options.max_bytes); });
  Reader reader(text, options.separator, name);
  Row row;
  TRIREME_CHECK(reader.next(row), name, " is empty; expected a line of column names");
  const std::vector<std::string> header(row.cells.begin(), row.cells.end());
  const auto target = std::ranges::find(header, options.target);
  TRIREME_CHECK(target != header.end(), name, " has no column \"", shown(options.target),
                "\"; expected it among the names in its first line");
  const auto target_index = static_cast<size_t>(target - header.begin());
  Survey found = survey(reader, header, name,
                        options.is_class ? std::optional<size_t>(target_index) : std::nullopt);
  TRIREME_CHECK(found.num_rows > 0, name, " has no rows below its column names");
  num_rows_ = found.num_rows;

  if (like != nullptr) {
    numbers_ = like->numbers_;
    categories_ = like->categories_;
    const auto find = [&](Column& column) {
      const auto at = std::ranges::find(header, column.name);
      TRIREME_CHECK(at != header.end(), name, " has no column \"", shown(column.name),
                    "\", which the training data has");
      column.index = static_cast<size_t>(at - header.begin());
    };
    std::ranges::for_each(numbers_, find);
    std::ranges::for_each(categories_, find);
  } else {
    for (size_t i = 0; i < header.size(); ++i) {
      if (i == target_index) continue;
      Column column{.name = header[i], .index = i};
      if (found.is_category[i]) column.categories = std::move(found.names[i]);
      (found.is_category[i] ? categories_ : numbers_).push_back(std::move(column));
    }
  }
  if (options.is_class)
    if (like != nullptr) {
      classes_ = like->classes_;
    } else {
      classes_ = std::move(found.names[target_index]);
    }

  const auto rows = static_cast<size_t>(num_rows_);
  values_.reserve(rows * numbers_.size());
  codes_.reserve(rows * categories_.size());
  (options.is_class ? target_class_.reserve(rows) : target_value_.reserve(rows));
  while (reader.next(row)) {
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
  const auto copy = [index](const auto& all, auto type, int64_t width, at::ScalarType dtype) {
    at::Tensor row = at::empty({width}, dtype);
    std::copy_n(all.begin() + index * width, width, row.mutable_data_ptr<decltype(type)>());
    return row;
  };
  NamedTensors sample = {{"x", copy(values_, float(), num_numbers(), at::kFloat)}};
  if (!categories_.empty()) {
    sample.emplace_back("categories", copy(codes_, int64_t(), std::ssize(categories_), at::kLong));
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

}  // namespace trireme::dataset
