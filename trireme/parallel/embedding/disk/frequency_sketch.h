// Estimates how often rows were used of late, in a few bits per row.
// Sources: Cormode & Muthukrishnan 2005, "An improved data stream summary: the count-min sketch";
//          aging: Einziger et al. 2017, arXiv:1512.00727 (TinyLFU), section 3.3
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::parallel::inline internal {

class FrequencySketch {
 public:
  static constexpr uint8_t kMost = 15;

  // capacity: how many rows shall be told apart
  // Memory:   4 to 8 bytes for each
  explicit FrequencySketch(int64_t capacity);

  // Counts a use. After ten uses per row of the capacity all counts are halved.
  void add(int64_t row);
  // At least the uses counted, as far as they were not halved, and at most kMost.
  uint8_t estimate(int64_t row) const;

 private:
  static constexpr int kNumHashes = 4;
  size_t place(int64_t row, int hash) const;

  std::vector<uint8_t> counts_;  // [kNumHashes * width]
  uint64_t mask_;                // width - 1
  int64_t num_added_ = 0;        // since the last halving
};

}  // namespace trireme::parallel::inline internal
