#include "trireme/parallel/embedding/rows/touched_rows.h"

#include <algorithm>
#include <limits>

namespace trireme::parallel {
namespace {

// A byte per row: 255 marks, then all rows count as touched once.
constexpr uint8_t kLastStamp = std::numeric_limits<uint8_t>::max();

}  // namespace

void TouchedRows::touch(std::span<const int64_t> rows) {
  if (rows.empty()) return;
  uint8_t* const stamps = stamps_.data();
  // The same value from all threads; no other is written before mark().
  for (const int64_t row : rows) stamps[row] = now_;
  is_touched_.store(true, std::memory_order_relaxed);
}

int64_t TouchedRows::mark() {
  // Only if something was touched: marks without changes must not use up stamps.
  if (is_touched_.exchange(false)) {
    if (now_ < kLastStamp) {
      ++now_;
    } else {
      forget();
    }
  }
  return first_mark_ + now_ - 1;
}

std::optional<std::vector<int64_t>> TouchedRows::since(int64_t mark) const {
  if (mark < first_mark_ || mark >= first_mark_ + now_) return std::nullopt;
  const auto last = static_cast<uint8_t>(mark - first_mark_);
  const auto is_since = [last](uint8_t stamp) { return stamp > last; };
  std::vector<int64_t> rows;
  // Most blocks of a large table have no such row, and are looked at with wide registers.
  constexpr size_t kBlock = 64;
  for (size_t begin = 0; begin < stamps_.size(); begin += kBlock) {
    const std::span block =
        std::span(stamps_).subspan(begin, std::min(kBlock, stamps_.size() - begin));
    uint8_t any = 0;
    for (const uint8_t stamp : block) any |= static_cast<uint8_t>(is_since(stamp));
    if (any == 0) continue;
    for (size_t i = 0; i < block.size(); ++i) {
      if (is_since(block[i])) rows.push_back(static_cast<int64_t>(begin + i));
    }
  }
  return rows;
}

void TouchedRows::forget() {
  first_mark_ += kLastStamp;  // beyond every mark so far
  now_ = 1;
  std::ranges::fill(stamps_, uint8_t{0});
  is_touched_.store(false);
}

}  // namespace trireme::parallel
