#include "trireme/watch/series/metric_columns.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::watch {
namespace {

constexpr double kNoValue = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kRowsBytes = 656;  // of a deque that has nothing yet
constexpr size_t kIndexBytes = 64;  // of a name's place in by_name_

}  // namespace

uint32_t MetricColumns::Column::row_at(size_t index) const {
  return rows ? (*rows)[index] : static_cast<uint32_t>(first_row + index);
}

size_t MetricColumns::Column::index_of(size_t row) const {
  if (rows) return static_cast<size_t>(std::ranges::lower_bound(*rows, row) - rows->begin());
  return row <= first_row ? 0 : std::min(row - first_row, values.size());
}

// The rows of a column with its first gap, 4 bytes a value, may come on top of the bound.
bool MetricColumns::is_full() const {
  return num_values_ >= kMostValues || num_bytes() >= kMostBytes ||
         num_rows_ >= std::numeric_limits<uint32_t>::max();
}

size_t MetricColumns::Column::num_bytes() const {
  const size_t gaps = rows ? rows->size() * sizeof(uint32_t) + kRowsBytes : 0;
  return sizeof(Column) + name.capacity() + kIndexBytes + values.num_bytes() + gaps;
}

int64_t MetricColumns::step_at(size_t row) const {
  const auto behind = std::ranges::upper_bound(segments_, row, {}, &Segment::row);
  const Segment& segment = *std::prev(behind);
  return segment.step + static_cast<int64_t>(row - segment.row);
}

size_t MetricColumns::row_of(int64_t step) const {
  const auto behind = std::ranges::upper_bound(segments_, step, {}, &Segment::step);
  if (behind == segments_.begin()) return 0;
  const Segment& segment = *std::prev(behind);
  const size_t end = behind == segments_.end() ? num_rows_ : behind->row;
  return std::min(end, segment.row + static_cast<size_t>(step - segment.step));
}

void MetricColumns::cut(size_t num_rows) {
  for (Column& column : columns_) {
    const size_t before = column.values.size();
    const size_t kept = column.index_of(num_rows);
    if (kept == before) continue;
    column.values.cut(kept);
    if (column.rows) column.rows->resize(kept);
    num_values_ -= before - kept;
  }
  while (!segments_.empty() && segments_.back().row >= num_rows) segments_.pop_back();
  num_rows_ = num_rows;
  num_bytes_ = 0;
  for (const Column& column : columns_) num_bytes_ += column.num_bytes();
}

const MetricColumns::Column* MetricColumns::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &columns_[found->second];
}

// Lines mostly have the same fields in the same order, so the next column is tried first.
MetricColumns::Column* MetricColumns::column_for(std::string_view name, bool is_element) {
  if (expected_ < columns_.size() && columns_[expected_].name == name)
    return &columns_[expected_++];
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    expected_ = found->second + 1;
    return &columns_[found->second];
  }
  if (columns_.size() >= kMostColumns) return nullptr;
  columns_.push_back({.name = std::string(name), .is_element = is_element});
  num_bytes_ += columns_.back().num_bytes();
  by_name_.emplace(columns_.back().name, columns_.size() - 1);
  expected_ = columns_.size();
  return &columns_.back();
}

void MetricColumns::add_value(std::string_view name, double value, bool is_element) {
  Column* const column = is_full() ? nullptr : column_for(name, is_element);
  if (!column) {
    ++num_dropped_;
    return;
  }
  const size_t row = num_rows_ - 1;
  const size_t count = column->values.size();
  const bool follows = count == 0 || (!column->rows && column->first_row + count == row);
  if (count > 0 && column->row_at(count - 1) == row) return;  // the line has it twice
  num_bytes_ -= column->num_bytes();
  if (count == 0) {
    column->first_row = row;
    column->rows.reset();
  } else if (!follows && !column->rows) {
    column->rows = std::make_unique<std::deque<uint32_t>>();
    for (size_t i = 0; i < count; ++i)
      column->rows->push_back(static_cast<uint32_t>(column->first_row + i));
  }
  if (column->rows) column->rows->push_back(static_cast<uint32_t>(row));
  column->values.add(value);
  num_bytes_ += column->num_bytes();
  ++num_values_;
}

void MetricColumns::add_list(std::string_view name, std::span<const double> values) {
  const size_t count = std::min(values.size(), kMostListValues);
  num_dropped_ += static_cast<int64_t>(values.size() - count);
  const auto found = std::ranges::find(lists_, name, &std::pair<std::string, size_t>::first);
  if (found == lists_.end()) {
    if (lists_.size() >= kMostLists) {
      num_dropped_ += static_cast<int64_t>(count);
      return;
    }
    lists_.emplace_back(name, count);
  } else {
    found->second = std::max(found->second, count);
  }
  std::string element(name);
  element += '/';
  const size_t stem = element.size();
  for (size_t i = 0; i < count; ++i) {
    element.resize(stem);
    element += std::to_string(i);
    add_value(element, values[i], /*is_element=*/true);
  }
}

bool MetricColumns::add(const MetricLine& line) {
  const bool goes_back = num_rows_ > 0 && line.step() <= step_at(num_rows_ - 1);
  if (line.epoch() < newest_epoch_ || is_full() || (goes_back && num_returns_ >= kMostReturns)) {
    ++num_dropped_;
    return false;
  }
  newest_epoch_ = line.epoch();
  if (goes_back) {
    ++num_returns_;
    cut(row_of(line.step()));
  }
  if (num_rows_ == 0 || step_at(num_rows_ - 1) + 1 != line.step())
    segments_.push_back({num_rows_, line.step()});
  ++num_rows_;
  expected_ = 0;
  for (const MetricField& field : line.fields()) {
    if (field.is_list) {
      add_list(field.name, line.values_of(field));
    } else {
      add_value(field.name, line.values_of(field).front(), /*is_element=*/false);
    }
  }
  return true;
}

std::vector<std::string> MetricColumns::names() const {
  std::vector<std::string> names;
  for (const Column& column : columns_) {
    if (!column.is_element && column.values.size() > 0) names.push_back(column.name);
  }
  return names;
}

std::string MetricColumns::first_ending(std::string_view end) const {
  const auto found = std::ranges::find_if(columns_, [&](const Column& column) {
    return !column.is_element && column.values.size() > 0 && column.name.ends_with(end);
  });
  return found == columns_.end() ? "" : found->name;
}

double MetricColumns::value(std::string_view name, size_t row) const {
  const Column* const column = find(name);
  if (!column) return kNoValue;
  const size_t index = column->index_of(row);
  const bool is_there = index < column->values.size() && column->row_at(index) == row;
  return is_there ? column->values.at(index) : kNoValue;
}

std::optional<std::pair<size_t, double>> MetricColumns::last(std::string_view name) const {
  const Column* const column = find(name);
  if (!column || column->values.size() == 0) return std::nullopt;
  const size_t index = column->values.size() - 1;
  return std::pair(size_t{column->row_at(index)}, column->values.at(index));
}

std::vector<double> MetricColumns::finite_before(std::string_view name, size_t end,
                                                 size_t most) const {
  std::vector<double> values;
  const Column* const column = find(name);
  if (!column) return values;
  for (size_t i = column->index_of(end); i > 0 && values.size() < most; --i) {
    if (const double value = column->values.at(i - 1); std::isfinite(value))
      values.push_back(value);
  }
  std::ranges::reverse(values);
  return values;
}

std::vector<double> MetricColumns::list_values(const std::string& list, size_t row) const {
  const auto found = std::ranges::find(lists_, list, &std::pair<std::string, size_t>::first);
  std::vector<double> values;
  if (found == lists_.end()) return values;
  for (size_t i = 0; i < found->second; ++i) values.push_back(value(concat(list, '/', i), row));
  return values;
}

std::optional<Points> MetricColumns::points(std::string_view name,
                                            const PointsRequest& request) const {
  const Column* const column = find(name);
  if (!column) return std::nullopt;
  Points points;
  if (num_rows_ == 0 || request.to < request.from) return points;
  const size_t end_row = request.to == INT64_MAX ? num_rows_ : row_of(request.to + 1);
  const size_t begin = column->index_of(row_of(request.from));
  const size_t end = column->index_of(end_row);
  points.count = static_cast<int64_t>(end - begin);
  const size_t width = bucket_width(end - begin, request.most);
  for (size_t i = begin; i < end; i += width) {
    const Summary summary = column->values.summary(i, std::min(end, i + width));
    const bool has_any = summary.count > 0;
    points.add(step_at(column->row_at(i)), has_any ? summary.min : kNoValue,
               has_any ? summary.max : kNoValue, summary.mean());
  }
  return points;
}

}  // namespace trireme::watch
