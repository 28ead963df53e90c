// Reads a line of metrics.jsonl into numbers. Anyone may have written the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::watch {

struct MetricField {
  std::string_view name;
  size_t first = 0;  // of its values
  size_t count = 1;
  bool is_list = false;
};

// Not thread safe. One object reads many lines and uses its memory again.
class MetricLine {
 public:
  static constexpr size_t kMostNameBytes = 200;

  // Returns whether `line` is an object with a whole "step" of at least 0. null, a number too large
  // for a double, and what is no number in a list become NaN; true is 1, false is 0; texts, objects
  // and fields with longer names are left out. The line must outlive the fields.
  bool read(std::string_view line);

  int64_t step() const { return step_; }
  int64_t epoch() const { return epoch_; }  // 0: it has none
  // All but the step, in the order of the line.
  std::span<const MetricField> fields() const { return fields_; }
  std::span<const double> values_of(const MetricField& field) const {
    return std::span(values_).subspan(field.first, field.count);
  }

 private:
  bool read_fast(std::string_view line);
  bool read_any(std::string_view line);
  bool read_value(std::string_view& rest, std::string_view name);
  bool add(std::string_view name, size_t first, bool is_list);
  void clear();

  int64_t step_ = -1;
  int64_t epoch_ = 0;
  std::vector<MetricField> fields_;
  std::vector<double> values_;
  std::deque<std::string> names_;  // those that are not in the line as they are
};

}  // namespace trireme::watch
