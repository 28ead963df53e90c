#include "trireme/parallel/embedding/disk/slot_map.h"

#include <bit>

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {

SlotMap::SlotMap(int64_t capacity) {
  const size_t size = std::bit_ceil(static_cast<size_t>(2 * capacity + 2));
  rows_.resize(size);
  slots_.resize(size, kNone);
  mask_ = size - 1;
}

size_t SlotMap::home(int64_t row) const {
  constexpr uint64_t kGoldenRatio = 0x9e3779b97f4a7c15;  // spreads rows that follow each other
  const uint64_t mixed = static_cast<uint64_t>(row) * kGoldenRatio;
  return (mixed ^ (mixed >> 32)) & mask_;
}

int32_t SlotMap::find(int64_t row) const {
  size_t place = home(row);
  while (slots_[place] != kNone && rows_[place] != row) place = next(place);
  return slots_[place];
}

void SlotMap::insert(int64_t row, int32_t slot) {
  size_t place = home(row);
  while (slots_[place] != kNone) place = next(place);
  rows_[place] = row;
  slots_[place] = slot;
}

void SlotMap::erase(int64_t row) {
  size_t gap = home(row);
  while (rows_[gap] != row || slots_[gap] == kNone) {
    TRIREME_ASSERT(slots_[gap] != kNone, "row ", row, " is in no slot");
    gap = next(gap);
  }
  // Moves rows into the gap until one after it is at home.
  for (size_t place = next(gap); slots_[place] != kNone; place = next(place)) {
    const size_t distance = (place - home(rows_[place])) & mask_;
    if (distance < ((place - gap) & mask_)) continue;
    rows_[gap] = rows_[place];
    slots_[gap] = slots_[place];
    gap = place;
  }
  slots_[gap] = kNone;
}

}  // namespace trireme::parallel::inline internal
