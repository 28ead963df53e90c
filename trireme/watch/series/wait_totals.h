// Who waited for whom, and how long, in any range of steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace trireme::watch {

struct WaitTotal {
  std::string axis;
  int32_t waiter = 0;
  int32_t awaited = 0;
  double seconds = 0;
};

// Not thread safe. Bounded: of the oldest waits only the sums stay, which count at their last step.
class WaitTotals {
 public:
  static constexpr size_t kMostRecords = size_t{1} << 20;
  static constexpr size_t kMostAxes = 64;
  explicit WaitTotals(size_t most_records = kMostRecords) : most_records_(most_records) {}

  // Negative ranks and seconds that are no positive number are left out.
  void add(int64_t step, const std::string& axis, int32_t waiter, int32_t awaited, float seconds);
  void clear();

  const std::vector<std::string>& axes() const { return axes_; }
  // The largest sums from step `from` to step `to`, at most `most`.
  std::vector<WaitTotal> between(int64_t from, int64_t to, size_t most) const;

 private:
  struct Record {
    int64_t step;
    int32_t waiter;
    int32_t awaited;
    float seconds;
    uint32_t axis;
  };
  void join_oldest();

  size_t most_records_;
  std::vector<std::string> axes_;
  std::deque<Record> records_;
};

}  // namespace trireme::watch
