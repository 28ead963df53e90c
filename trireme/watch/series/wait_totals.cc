#include "trireme/watch/series/wait_totals.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

namespace trireme::watch {

void WaitTotals::clear() {
  axes_.clear();
  records_.clear();
}

void WaitTotals::add(int64_t step, const std::string& axis, int32_t waiter, int32_t awaited,
                     float seconds) {
  if (waiter < 0 || awaited < 0 || !std::isfinite(seconds) || seconds <= 0) return;
  auto place = std::ranges::find(axes_, axis);
  if (place == axes_.end()) {
    if (axes_.size() >= kMostAxes) return;
    axes_.push_back(axis);
    place = std::prev(axes_.end());
  }
  records_.push_back(
      {step, waiter, awaited, seconds, static_cast<uint32_t>(place - axes_.begin())});
  if (records_.size() > most_records_) join_oldest();
}

void WaitTotals::join_oldest() {
  std::map<std::tuple<uint32_t, int32_t, int32_t>, Record> sums;
  const size_t half = records_.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    const Record& record = records_[i];
    const auto [place, is_new] =
        sums.try_emplace({record.axis, record.waiter, record.awaited}, record);
    if (is_new) continue;
    place->second.step = std::max(place->second.step, record.step);
    place->second.seconds += record.seconds;
  }
  std::vector<Record> joined;
  for (const auto& [key, record] : sums) joined.push_back(record);
  // With more pairs than room, the largest stay.
  std::ranges::sort(joined, std::greater<>(), &Record::seconds);
  joined.resize(std::min(joined.size(), half / 2 + 1));
  records_.erase(records_.begin(), records_.begin() + static_cast<ptrdiff_t>(half));
  records_.insert(records_.begin(), joined.begin(), joined.end());
}

std::vector<WaitTotal> WaitTotals::between(int64_t from, int64_t to, size_t most) const {
  std::map<std::tuple<uint32_t, int32_t, int32_t>, double> sums;
  for (const Record& record : records_) {
    if (record.step >= from && record.step <= to)
      sums[{record.axis, record.waiter, record.awaited}] += record.seconds;
  }
  std::vector<WaitTotal> totals;
  for (const auto& [key, seconds] : sums)
    totals.push_back({axes_[std::get<0>(key)], std::get<1>(key), std::get<2>(key), seconds});
  std::ranges::stable_sort(totals, std::greater<>(), &WaitTotal::seconds);
  totals.resize(std::min(totals.size(), most));
  return totals;
}

}  // namespace trireme::watch
