#include "trireme/parallel/embedding/open/open_rows.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/shown.h"

namespace trireme::parallel::inline internal {

int64_t OpenRows::find(int64_t key, int64_t num_steps) const {
  const auto found = entries_.find(key);
  if (found == entries_.end() || is_expired(found->second, num_steps)) return kNone;
  return found->second.slot;
}

OpenRows::Use OpenRows::use(int64_t key, int64_t step) {
  const int64_t before = step - 1;
  if (options_.expire_steps > 0 && entries_.size() >= sweep_at_) {
    sweep(before);
    sweep_at_ = std::max<size_t>(1024, 2 * entries_.size());
  }
  Entry entry;
  if (const auto found = entries_.find(key); found != entries_.end()) {
    if (!is_expired(found->second, before)) {
      entry = found->second;
    } else {
      if (found->second.slot != kNone) free_.push_back(found->second.slot);
      entries_.erase(found);
    }
  }
  entry.last_use = static_cast<int32_t>(step);
  bool is_new = false;
  if (entry.slot == kNone) {
    entry.uses = std::min(entry.uses, std::numeric_limits<int32_t>::max() - 1) + 1;
    is_new = entry.uses >= options_.min_uses;
    if (is_new) entry.slot = take_slot(before);
  }
  entries_[key] = entry;
  return {entry.slot, is_new};
}

int64_t OpenRows::take_slot(int64_t num_steps) {
  if (is_full()) sweep(num_steps);
  TRIREME_CHECK(!is_full(), "embedding table \"", shown(options_.table), "\" has ",
                options_.max_rows,
                " rows on this rank, as many as it may; allow more, drop rows after fewer steps, "
                "require more uses of an id or use more ranks");
  if (free_.empty()) return num_slots_++;
  const int64_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void OpenRows::sweep(int64_t num_steps) {
  if (options_.expire_steps == 0) return;
  for (auto each = entries_.begin(); each != entries_.end();) {
    if (is_expired(each->second, num_steps)) {
      if (each->second.slot != kNone) free_.push_back(each->second.slot);
      each = entries_.erase(each);
    } else {
      ++each;
    }
  }
}

OpenKeys OpenRows::list(int64_t num_steps, bool has_row) const {
  std::vector<std::pair<int64_t, Entry>> sorted;
  for (const auto& [key, entry] : entries_) {
    if ((entry.slot != kNone) == has_row && !is_expired(entry, num_steps)) {
      sorted.emplace_back(key, entry);
    }
  }
  std::ranges::sort(sorted, {}, [](const auto& each) { return each.first; });
  OpenKeys list;
  for (const auto& [key, entry] : sorted) {
    list.keys.push_back(key);
    list.last_uses.push_back(entry.last_use);
    list.numbers.push_back(has_row ? entry.slot : entry.uses);
  }
  return list;
}

void OpenRows::load(const OpenKeys& rows, const OpenKeys& waiting) {
  const auto count = std::ssize(rows.keys);
  TRIREME_CHECK(options_.max_rows == 0 || count <= options_.max_rows, "embedding table \"",
                shown(options_.table), "\": the checkpoint has ", count,
                " rows for this rank, which may have ", options_.max_rows,
                "; allow more or use more ranks");
  entries_.clear();
  free_.clear();
  num_slots_ = count;
  const auto number = [](int64_t value) {
    return static_cast<int32_t>(
        std::clamp<int64_t>(value, 0, std::numeric_limits<int32_t>::max() - 1));
  };
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    entries_[rows.keys[i]] = {static_cast<int64_t>(i), number(rows.last_uses[i]), 0};
  }
  for (size_t i = 0; i < waiting.keys.size(); ++i) {
    entries_[waiting.keys[i]] = {kNone, number(waiting.last_uses[i]), number(waiting.numbers[i])};
  }
  sweep_at_ = std::max<size_t>(1024, 2 * entries_.size());
}

}  // namespace trireme::parallel::inline internal
