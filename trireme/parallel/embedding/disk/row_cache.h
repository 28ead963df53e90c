// Decides which rows of a table on disk stay in memory: how often rows were used, where they are,
// and which one goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace trireme::parallel {

// Estimates how often rows were used recently, in a few bits per row.
// Sources: Cormode & Muthukrishnan 2005, "An improved data stream summary: the count-min sketch";
//          aging: Einziger et al. 2017, arXiv:1512.00727 (TinyLFU), section 3.3
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

// Maps rows to slots: a hash table that never grows.
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

// Decides which rows stay in a fixed number of slots. New rows enter a small window. A row that
// leaves the window stays only if it was used more often recently than the row that it would
// replace. Knows nothing of what is in the slots.
// Source: Einziger et al. 2017, arXiv:1512.00727 (W-TinyLFU); the clock: Corbato 1968, "A paging
//         experiment with the Multics system"

// Not thread safe.
class RowCache {
 public:
  static constexpr int32_t kNone = SlotMap::kNone;
  static constexpr int64_t kNoRow = -1;

  // Memory: some 60 bytes per slot
  explicit RowCache(int64_t num_slots);

  // The row's slot, or kNone. Does not count as a use.
  int32_t slot_of(int64_t row) const { return map_.find(row); }
  // Counts a use. Returns the row's slot, which it keeps until unpin(); kNone if it has none.
  int32_t use(int64_t row);

  // The slot for a row that use() did not find, and the row that leaves it.
  struct Placed {
    int32_t slot = kNone;  // kNone: every slot is pinned
    int64_t evicted_row = kNoRow;
  };
  // The row keeps its slot until unpin().
  Placed place(int64_t row);
  // From now on all rows may leave their slots.
  void unpin();

 private:
  enum class Part : uint8_t { kFree, kWindow, kMain };
  struct Slot {
    int64_t row = kNoRow;
    uint64_t epoch = 0;  // of the last use
    Part part = Part::kFree;
    uint8_t uses = 0;  // that the clock has not taken away yet
  };

  bool is_pinned(int32_t slot) const { return at(slot).epoch == epoch_; }
  Slot& at(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  const Slot& at(int32_t slot) const { return slots_[static_cast<size_t>(slot)]; }
  void fill_main();
  int32_t take_oldest();
  int32_t oldest_of_window();
  int32_t victim_of_main();
  int32_t make_room();

  std::vector<Slot> slots_;
  std::deque<int32_t> window_;  // the oldest first
  size_t num_unknown_ = 0;      // the oldest ones, which may not be pinned; the others are
  int64_t window_capacity_;
  int64_t num_main_ = 0;
  int32_t num_used_ = 0;  // slots from here on are free
  int32_t hand_ = 0;      // of the clock
  uint64_t epoch_ = 1;
  SlotMap map_;
  FrequencySketch sketch_;
};

}  // namespace trireme::parallel
