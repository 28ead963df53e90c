#include "trireme/parallel/embedding/disk/row_cache.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "trireme/base/error.h"

namespace trireme::parallel {

FrequencySketch::FrequencySketch(int64_t capacity) {
  const auto width = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(capacity, 16)));
  counts_.resize(kNumHashes * width);
  mask_ = width - 1;
}

size_t FrequencySketch::place(int64_t row, int hash) const {
  constexpr uint64_t kOddNumbers[kNumHashes] = {0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9,
                                                0x94d049bb133111eb, 0xd6e8feb86659fd93};
  uint64_t mixed = (static_cast<uint64_t>(row) + 1) * kOddNumbers[hash];
  mixed ^= mixed >> 29;
  mixed *= kOddNumbers[(hash + 1) % kNumHashes];
  return static_cast<uint64_t>(hash) * (mask_ + 1) + ((mixed >> 32) & mask_);
}

void FrequencySketch::add(int64_t row) {
  const uint8_t count = estimate(row);
  if (count < kMost) {
    // Only the smallest counts grow, which keeps the estimates of others low.
    for (int hash = 0; hash < kNumHashes; ++hash) {
      uint8_t& each = counts_[place(row, hash)];
      if (each == count) ++each;
    }
  }
  // Old uses fade, so the cache follows the data.
  constexpr int64_t kUsesPerRow = 10;
  if (++num_added_ < kUsesPerRow * static_cast<int64_t>(mask_ + 1)) return;
  for (uint8_t& each : counts_) each /= 2;
  num_added_ /= 2;
}

uint8_t FrequencySketch::estimate(int64_t row) const {
  uint8_t least = kMost;
  for (int hash = 0; hash < kNumHashes; ++hash) {
    least = std::min(least, counts_[place(row, hash)]);
  }
  return least;
}

SlotMap::SlotMap(int64_t capacity) {
  // At most half full, so that probes are short and always find an end.
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

// Moves entries back instead of leaving a mark: marks would pile up over millions of evictions.
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

// New rows enter a small window; the main part is left by rows that were used less often. A row
// that leaves the window takes the place of the main part's victim only if a sketch of past uses
// says that it is used more, so a scan over rare rows does not push the frequent ones out. Rows of
// the batch under way are pinned by their epoch, which unpin() ends for all of them at once without
// touching any. Both searches for a victim are bounded: each window row is looked at once per
// batch, and the main part's hand goes round at most once for each use that a row can have.

namespace {

constexpr uint8_t kMostUses = 3;
constexpr int64_t kWindowShare = 20;  // one in 20 slots is the window's

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
  // Once per batch, however often the batch has the row.
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
  // On a tie the newer row goes, which keeps the main part stable.
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

}  // namespace trireme::parallel
