#include "trireme/parallel/embedding/disk/row_cache.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::parallel::inline internal {
namespace {

constexpr uint8_t kMostUses = 3;
constexpr int64_t kWindowShare = 20;  // one in so many slots is the window's

}  // namespace

RowCache::RowCache(int64_t num_slots)
    : slots_(static_cast<size_t>(num_slots)),
      window_capacity_(std::max<int64_t>(1, num_slots / kWindowShare)),
      map_(num_slots),
      sketch_(num_slots) {
  TRIREME_ASSERT(num_slots > 0 && num_slots < std::numeric_limits<int32_t>::max(), num_slots,
                 " slots");
}

int32_t RowCache::use(int64_t row) {
  sketch_.add(row);
  const int32_t slot = map_.find(row);
  if (slot == kNone) return kNone;
  Slot& found = at(slot);
  if (found.epoch != epoch_ && found.uses < kMostUses) ++found.uses;
  found.epoch = epoch_;
  return slot;
}

// Rows leave the window without a contest while the main part has room.
void RowCache::fill_main() {
  const auto main_capacity = std::ssize(slots_) - window_capacity_;
  while (num_main_ < main_capacity && std::ssize(window_) > window_capacity_) {
    at(take_oldest()).part = Part::kMain;
    ++num_main_;
  }
}

int32_t RowCache::take_oldest() {
  const int32_t slot = window_.front();
  window_.pop_front();
  if (num_unknown_ > 0) --num_unknown_;
  return slot;
}

// Takes the oldest row out of the window that is not pinned. Pinned ones become the newest, and are
// not looked at again before unpin(): a batch that fills the window would look at all each time.
int32_t RowCache::oldest_of_window() {
  while (num_unknown_ > 0) {
    const int32_t slot = take_oldest();
    if (!is_pinned(slot)) return slot;
    window_.push_back(slot);
  }
  return kNone;
}

void RowCache::unpin() {
  ++epoch_;
  num_unknown_ = window_.size();
}

int32_t RowCache::victim_of_main() {
  const auto size = static_cast<int32_t>(slots_.size());
  const int64_t most = int64_t{size} * (kMostUses + 1);
  for (int64_t tries = 0; tries < most; ++tries, hand_ = (hand_ + 1) % size) {
    Slot& slot = at(hand_);
    if (slot.part != Part::kMain || slot.epoch == epoch_) continue;
    if (slot.uses == 0) return hand_;
    --slot.uses;
  }
  return kNone;
}

// A slot whose row may leave, taken out of its part.
int32_t RowCache::make_room() {
  const int32_t candidate = oldest_of_window();
  const int32_t victim = victim_of_main();
  if (victim == kNone) return candidate;
  if (candidate == kNone) {
    --num_main_;
    return victim;
  }
  if (sketch_.estimate(at(candidate).row) <= sketch_.estimate(at(victim).row)) return candidate;
  at(candidate).part = Part::kMain;
  return victim;
}

RowCache::Placed RowCache::place(int64_t row) {
  Placed placed;
  if (num_used_ < std::ssize(slots_)) {
    placed.slot = num_used_++;
  } else {
    placed.slot = make_room();
    if (placed.slot == kNone) return placed;
    placed.evicted_row = at(placed.slot).row;
    map_.erase(placed.evicted_row);
  }
  at(placed.slot) = {.row = row, .epoch = epoch_, .part = Part::kWindow};
  window_.push_back(placed.slot);
  map_.insert(row, placed.slot);
  fill_main();
  return placed;
}

}  // namespace trireme::parallel::inline internal
