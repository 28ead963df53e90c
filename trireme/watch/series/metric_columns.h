// The metrics of a run in memory, a column for each name, by step. Bounded, whatever the file has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trireme/watch/read/metric_line.h"
#include "trireme/watch/series/points.h"
#include "trireme/watch/series/pyramid.h"

namespace trireme::watch {

// Not thread safe. A row is a step; steps ascend. A line whose step is not behind the last one
// takes the place of that step and of all behind it, as the run has gone back; a line of an earlier
// epoch than another one before it does not count (train/metrics/metrics.h).
class MetricColumns {
 public:
  static constexpr size_t kMostColumns = size_t{1} << 17;
  static constexpr size_t kMostValues = size_t{1} << 25;
  static constexpr size_t kMostBytes = size_t{384} << 20;     // of memory, names and gaps included
  static constexpr size_t kMostListValues = size_t{1} << 13;  // of one list
  static constexpr size_t kMostLists = 256;
  static constexpr int64_t kMostReturns = 10'000;

  // Returns whether the line counts.
  bool add(const MetricLine& line);
  void clear() { *this = MetricColumns(); }

  size_t num_rows() const { return num_rows_; }
  int64_t num_dropped() const { return num_dropped_; }  // lines and values beyond the bounds
  size_t num_bytes() const { return num_bytes_ + segments_.size() * sizeof(Segment); }
  int64_t step_at(size_t row) const;
  // The first row whose step is at least `step`; num_rows() when there is none.
  size_t row_of(int64_t step) const;
  int64_t newest_epoch() const { return newest_epoch_; }
  int64_t num_returns() const { return num_returns_; }  // how often the run has gone back

  // In the order in which they came, without the elements of lists.
  std::vector<std::string> names() const;
  // The first of them that ends so; "" when none does. Copies no other name.
  std::string first_ending(std::string_view end) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // NaN when the row has none.
  double value(std::string_view name, size_t row) const;
  // The last value of the column, finite or not, with its row.
  std::optional<std::pair<size_t, double>> last(std::string_view name) const;
  // The last finite ones before the row `end`, at most `most`, the oldest first.
  std::vector<double> finite_before(std::string_view name, size_t end, size_t most) const;

  // The lists, by name, with the number of elements of the longest.
  const std::vector<std::pair<std::string, size_t>>& lists() const { return lists_; }
  // NaN where an element is missing.
  std::vector<double> list_values(const std::string& list, size_t row) const;

  // Nothing when there is no such column. An element of a list is "name/3".
  std::optional<Points> points(std::string_view name, const PointsRequest& request) const;

 private:
  struct Column {
    std::string name;
    bool is_element = false;
    Pyramid values{};
    size_t first_row = 0;
    // Of each value, if they are not one a row from first_row on.
    std::unique_ptr<std::deque<uint32_t>> rows{};
    size_t num_bytes() const;
    uint32_t row_at(size_t index) const;
    size_t index_of(size_t row) const;  // of the first value that is not before the row
  };
  struct Segment {  // from `row` on, each row is one step further
    size_t row = 0;
    int64_t step = 0;
  };

  const Column* find(std::string_view name) const;
  Column* column_for(std::string_view name, bool is_element);
  void add_value(std::string_view name, double value, bool is_element);
  void add_list(std::string_view name, std::span<const double> values);
  void cut(size_t num_rows);
  bool is_full() const;

  std::deque<Column> columns_;
  std::unordered_map<std::string_view, size_t> by_name_;  // the names are those of columns_
  std::vector<std::pair<std::string, size_t>> lists_;
  std::deque<Segment> segments_;
  size_t num_rows_ = 0;
  size_t num_values_ = 0;
  size_t num_bytes_ = 0;  // of columns_
  size_t expected_ = 0;   // the column of the next field, if the line is like the one before
  int64_t newest_epoch_ = 0;
  int64_t num_returns_ = 0;
  int64_t num_dropped_ = 0;
};

}  // namespace trireme::watch
