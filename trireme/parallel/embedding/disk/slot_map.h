// Which slot a row is in: a hash table that never grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::parallel::inline internal {

class SlotMap {
 public:
  static constexpr int32_t kNone = -1;

  // Memory: 12 to 24 bytes for each of `capacity` rows, times two
  explicit SlotMap(int64_t capacity);

  int32_t find(int64_t row) const;
  // The row must not be there, and there must be fewer than `capacity`.
  void insert(int64_t row, int32_t slot);
  // The row must be there.
  void erase(int64_t row);

 private:
  size_t home(int64_t row) const;
  size_t next(size_t place) const { return (place + 1) & mask_; }

  // Open addressing: a row is at its home place or, without a gap, after it.
  std::vector<int64_t> rows_;
  std::vector<int32_t> slots_;  // kNone: the place is empty
  size_t mask_;
};

}  // namespace trireme::parallel::inline internal
