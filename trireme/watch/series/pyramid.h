// A growing column of numbers that is drawn at any zoom: the smallest, the largest and the mean of
// any range of it in logarithmic time, so that a spike of one value is seen at every zoom.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

namespace trireme::watch {

// Of the finite values of a range.
struct Summary {
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  uint32_t count = 0;

  void add(double value);
  void add(const Summary& other);
  // NaN when there is no finite value.
  double mean() const;
};

// Not thread safe. Takes 8 bytes a value, and 2.7 for the summaries: of 16 values, of four of
// those, and so on. Memory grows in small blocks, never by doubling.
class Pyramid {
 public:
  static constexpr size_t kBase = 16;
  static constexpr size_t kFanout = 4;

  void add(double value);
  // What it takes of memory, with the blocks that it has begun.
  size_t num_bytes() const { return bytes_of(values_.size(), levels_.size()); }
  // Keeps the first `num_values`.
  void cut(size_t num_values);

  size_t size() const { return values_.size(); }
  double at(size_t index) const { return values_[index]; }
  // Of the values from `begin` to before `end`, which is at most size().
  Summary summary(size_t begin, size_t end) const;

 private:
  // Of a deque that has nothing yet: its table and one block.
  static constexpr size_t kDequeBytes = 80 + 64 + 512;
  static constexpr size_t bytes_of(size_t num_values, size_t num_levels) {
    const size_t summaries = num_values / kBase * kFanout / (kFanout - 1) * sizeof(Summary);
    return num_values * sizeof(double) + summaries + (1 + num_levels) * kDequeBytes;
  }

  std::deque<double> values_;
  std::vector<std::deque<Summary>> levels_;  // of whole groups
};

}  // namespace trireme::watch
