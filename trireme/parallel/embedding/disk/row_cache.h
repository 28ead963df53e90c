// Decides which rows stay in a fixed number of slots. New rows enter a small window. A row that
// leaves the window stays only if it was used more often of late than the row that it would
// replace. Knows nothing of what is in the slots.
// Source: Einziger et al. 2017, arXiv:1512.00727 (W-TinyLFU); the clock: Corbato 1968, "A paging
//         experiment with the Multics system"
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "trireme/parallel/embedding/disk/frequency_sketch.h"
#include "trireme/parallel/embedding/disk/slot_map.h"

namespace trireme::parallel::inline internal {

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
  size_t num_unknown_ = 0;      // so many of the oldest may not be pinned; the others are
  int64_t window_capacity_;
  int64_t num_main_ = 0;
  int32_t num_used_ = 0;  // slots from here on are free
  int32_t hand_ = 0;      // of the clock
  uint64_t epoch_ = 1;
  SlotMap map_;
  FrequencySketch sketch_;
};

}  // namespace trireme::parallel::inline internal
