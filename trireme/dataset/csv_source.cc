#include "trireme/dataset/csv_source.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/dataset/file/as_config_error.h"
#include "trireme/dataset/file/csv_cells.h"

namespace trireme::dataset {

// The text is cut into rows three times, because no row is kept: cells as strings took 25 times the
// memory of the file. The first pass finds the columns of numbers, which are known only at the end,
// as every cell must be one. The second collects the names of categories, and the third the values.
// Names are sorted, so that a category's number does not depend on the order of rows. A validation
// file takes columns and categories from the training's and may not bring its own.

namespace {

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

// A cell and its place, for messages.
struct Cell {
  const std::string& path;
  int64_t line;
  const std::string& column;
  std::string_view text;
  std::string where() const {
    return concat(path, line > 0 ? concat(":", line) : "", ": ", shown(column));
  }
};

float number_at(const Cell& cell) {
  const std::optional<double> value = parse_number(cell.text);
  TRIREME_CHECK(value && std::isfinite(static_cast<float>(*value)), cell.where(), " is \"",
                shown(cell.text), "\"; expected a finite number");
  return static_cast<float>(*value);
}

int32_t category_at(const Cell& cell, const std::vector<std::string>& categories) {
  const auto found = std::ranges::lower_bound(categories, cell.text, std::less<>());
  TRIREME_CHECK(found != categories.end() && *found == cell.text, cell.where(), " is \"",
                shown(cell.text), "\", which the training data does not have");
  return static_cast<int32_t>(found - categories.begin());
}

void check_row(const CsvRow& row, const std::vector<std::string>& header, const std::string& path) {
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
Survey survey(const CsvCells& below_header, const std::vector<std::string>& header,
              const std::string& path, std::optional<size_t> target) {
  Survey found{.is_category = std::vector<bool>(header.size())};
  CsvRow row;
  for (CsvCells reader = below_header; reader.next(row); ++found.num_rows) {
    check_row(row, header, path);
    for (size_t i = 0; i < header.size(); ++i) {
      if (!found.is_category[i]) found.is_category[i] = !parse_number(row.cells[i]);
    }
  }
  std::vector<Names> names(header.size());
  for (CsvCells reader = below_header; reader.next(row);) {
    for (size_t i = 0; i < header.size(); ++i) {
      if (found.is_category[i] || i == target) add_name(row.cells[i], names[i]);
    }
  }
  for (Names& of_column : names) found.names.push_back(sorted(std::move(of_column)));
  return found;
}

}  // namespace

CsvSource::CsvSource(const std::filesystem::path& path, const CsvOptions& options,
                     const CsvSource* like)
    : separator_(options.separator) {
  const std::string name = path.string();
  const std::string text = as_config_error([&] { return read_file(path, options.max_bytes); });
  CsvCells reader(text, options.separator, name);
  CsvRow row;
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
    const std::vector<size_t> columns = like->columns_in(header, name);
    for (size_t i = 0; i < columns.size(); ++i) {
      const bool is_number = i < numbers_.size();
      (is_number ? numbers_[i] : categories_[i - numbers_.size()]).index = columns[i];
    }
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
  const auto cell = [&](const std::string& column, size_t index) {
    return Cell{name, row.line, column, row.cells[index]};
  };
  while (reader.next(row)) {
    for (const Column& column : numbers_) {
      values_.push_back(number_at(cell(column.name, column.index)));
    }
    for (const Column& column : categories_) {
      codes_.push_back(category_at(cell(column.name, column.index), column.categories));
    }
    const Cell place = cell(options.target, target_index);
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

std::vector<size_t> CsvSource::columns_in(std::span<const std::string> header,
                                          const std::string& path) const {
  std::vector<size_t> columns;
  for (const std::vector<Column>* const group : {&numbers_, &categories_}) {
    for (const Column& column : *group) {
      const auto at = std::ranges::find(header, column.name);
      TRIREME_CHECK(at != header.end(), path, " has no column \"", shown(column.name),
                    "\", which the training data has");
      columns.push_back(static_cast<size_t>(at - header.begin()));
    }
  }
  return columns;
}

NamedTensors CsvSource::sample_of(std::span<const std::string> cells,
                                  std::span<const size_t> columns, const std::string& where) const {
  const at::Tensor x = at::empty({num_numbers()}, at::kFloat);
  for (size_t i = 0; i < numbers_.size(); ++i) {
    x.mutable_data_ptr<float>()[i] = number_at({where, 0, numbers_[i].name, cells[columns[i]]});
  }
  NamedTensors sample = {{"x", x}};
  if (categories_.empty()) return sample;
  const at::Tensor codes = at::empty({std::ssize(categories_)}, at::kLong);
  for (size_t i = 0; i < categories_.size(); ++i) {
    const Cell cell{where, 0, categories_[i].name, cells[columns[numbers_.size() + i]]};
    codes.mutable_data_ptr<int64_t>()[i] = category_at(cell, categories_[i].categories);
  }
  sample.emplace_back("categories", codes);
  return sample;
}

}  // namespace trireme::dataset
