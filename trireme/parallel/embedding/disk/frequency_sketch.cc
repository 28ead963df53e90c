#include "trireme/parallel/embedding/disk/frequency_sketch.h"

#include <algorithm>
#include <bit>

namespace trireme::parallel::inline internal {

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

}  // namespace trireme::parallel::inline internal
