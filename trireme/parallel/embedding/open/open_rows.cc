#include "trireme/parallel/embedding/open/open_rows.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/embedding/open/eviction_heap.h"

namespace trireme::parallel {
namespace {

// Steps are kept in 32 bits: an entry is per key, and there are many.
int32_t bounded(int64_t value) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(value, 0, std::numeric_limits<int32_t>::max() - 1));
}

}  // namespace

// links_[0] is the list's own end, so that no link is null.
OpenRows::OpenRows(OpenRowsOptions options)
    : options_(std::move(options)),
      keeps_order_(options_.evicts == Evicts::kOldest || options_.expire_steps > 0),
      counts_uses_(options_.evicts == Evicts::kRarest),
      links_(1) {}

int64_t OpenRows::find(int64_t key, int64_t num_steps) const {
  const auto found = entries_.find(key);
  if (found == entries_.end() || is_expired(found->second, num_steps)) return kNone;
  return found->second.slot;
}

OpenRows::Use OpenRows::use(int64_t key, int64_t step) {
  // Ids that wait for a row pile up without one. Twice the entries of the last sweep keeps its cost
  // constant per use.
  if (options_.expire_steps > 0 && entries_.size() >= sweep_at_) {
    sweep(step - 1);
    sweep_at_ = std::max<size_t>(1024, 2 * entries_.size());
  }
  Entry entry;
  if (const auto found = entries_.find(key); found != entries_.end()) {
    if (!is_expired(found->second, step - 1)) {
      entry = found->second;
    } else if (found->second.slot != kNone) {
      drop_row(found);
      ++counts_.expired;
    }
  }
  // Exchanged before the count decays: it decays by the time since the last use.
  const int64_t last_use = std::exchange(entry.last_use, bounded(step));
  bool is_new = false;
  // To the end: the list is in the order of last uses.
  if (entry.slot != kNone) {
    unlink(entry.slot);
    append(entry.slot, key);
    if (counts_uses_) {
      // A row's uses are a float in the bits of the count that it had while it waited.
      entry.uses = std::bit_cast<int32_t>(uses_after(std::bit_cast<float>(entry.uses), last_use,
                                                     entry.last_use, options_.halve_steps));
    }
  } else {
    // Stays below the largest, which means "none".
    entry.uses = std::min(entry.uses, std::numeric_limits<int32_t>::max() - 1) + 1;
    is_new = entry.uses >= options_.min_uses;
    if (is_new) {
      entry.slot = take_slot();
      append(entry.slot, key);
      if (counts_uses_) {
        entry.uses = std::bit_cast<int32_t>(1.0F);
        heap_.insert(entry.slot, rank_of(key, entry));
      }
      ++counts_.rows;
      ++counts_.begun;
    }
  }
  entries_[key] = entry;
  return {entry.slot, is_new};
}

int64_t OpenRows::take_slot() {
  if (!free_.empty()) {
    const int64_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  TRIREME_CHECK(links_.size() < std::numeric_limits<Slot>::max(), "embedding table \"",
                shown(options_.table), "\" has ", num_slots(),
                " rows on this rank, as many as one can have; use more ranks");
  links_.emplace_back();
  return num_slots() - 1;
}

void OpenRows::append(int64_t slot, int64_t key) {
  if (!keeps_order_) return;
  const auto at = static_cast<Slot>(slot + 1);
  links_[at] = {.key = key, .before = links_[0].before, .after = 0};
  links_[links_[0].before].after = at;
  links_[0].before = at;
}

void OpenRows::unlink(int64_t slot) {
  if (!keeps_order_) return;
  const Link& link = links_[static_cast<size_t>(slot + 1)];
  links_[link.before].after = link.after;
  links_[link.after].before = link.before;
}

EvictionRank OpenRows::rank_of(int64_t key, const Entry& entry) const {
  return {
      .weight = use_weight(std::bit_cast<float>(entry.uses), entry.last_use, options_.halve_steps),
      .last_use = entry.last_use,
      .key = key};
}

void OpenRows::drop_row(Place place) {
  unlink(place->second.slot);
  if (counts_uses_) heap_.erase(place->second.slot);
  free_.push_back(place->second.slot);
  if (options_.on_drop) options_.on_drop(place->second.slot);
  entries_.erase(place);
  --counts_.rows;
}

void OpenRows::expire(int64_t num_steps) {
  if (options_.expire_steps == 0) return;
  // Stops at the first that is young enough: the list is ordered.
  for (; counts_.rows > 0; ++counts_.expired) {
    const Place place = find_oldest();
    if (!is_expired(place->second, num_steps)) return;
    drop_row(place);
  }
}

std::vector<EvictionRank> OpenRows::first_to_evict(int64_t count) {
  if (counts_uses_) {
    return heap_.first(count, [this](const EvictionRank& old) {
      return rank_of(old.key, entries_.find(old.key)->second);
    });
  }
  std::vector<EvictionRank> ranks;
  for (Slot at = links_[0].after; at != 0 && std::ssize(ranks) < count; at = links_[at].after) {
    const int64_t key = links_[at].key;
    ranks.push_back({.last_use = entries_.find(key)->second.last_use, .key = key});
  }
  return ranks;
}

void OpenRows::evict(int64_t count) {
  for (const EvictionRank& rank : first_to_evict(count)) {
    drop_row(entries_.find(rank.key));
    ++counts_.evicted;
  }
}

void OpenRows::sweep(int64_t num_steps) {
  for (auto each = entries_.begin(); each != entries_.end();) {
    const bool is_over = each->second.slot == kNone && is_expired(each->second, num_steps);
    each = is_over ? entries_.erase(each) : std::next(each);
  }
}

OpenKeys OpenRows::list(int64_t num_steps, bool has_row) const {
  std::vector<std::pair<int64_t, Entry>> sorted;
  for (const auto& [key, entry] : entries_) {
    if ((entry.slot != kNone) == has_row && !is_expired(entry, num_steps)) {
      sorted.emplace_back(key, entry);
    }
  }
  // By key, so that the order does not depend on the hash table.
  std::ranges::sort(sorted, {}, [](const auto& each) { return each.first; });
  OpenKeys list;
  for (const auto& [key, entry] : sorted) {
    list.keys.push_back(key);
    list.last_uses.push_back(entry.last_use);
    list.numbers.push_back(has_row ? entry.slot : entry.uses);
    if (!has_row || !counts_uses_) continue;
    list.uses.push_back(std::bit_cast<float>(entry.uses));
  }
  return list;
}

void OpenRows::load(const OpenKeys& rows, const OpenKeys& waiting) {
  entries_.clear();
  free_.clear();
  heap_.clear();
  links_.assign(1 + rows.keys.size(), {});
  links_[0] = {};
  // Ages of equal steps are ordered by key, as at an eviction.
  std::vector<std::pair<EvictionRank, int64_t>> by_age;  // with slots
  for (size_t i = 0; i < rows.keys.size(); ++i) {
    const int32_t last_use = bounded(rows.last_uses[i]);
    Entry& entry = entries_[rows.keys[i]];
    entry = {static_cast<int64_t>(i), last_use, 0};
    by_age.push_back({{.last_use = last_use, .key = rows.keys[i]}, static_cast<int64_t>(i)});
    if (!counts_uses_) continue;
    entry.uses = std::bit_cast<int32_t>(rows.uses.empty() ? 1 : rows.uses[i]);
    heap_.insert(static_cast<int64_t>(i), rank_of(rows.keys[i], entry));
  }
  std::ranges::sort(by_age);
  for (const auto& [age, slot] : by_age) append(slot, age.key);
  for (size_t i = 0; i < waiting.keys.size(); ++i) {
    entries_[waiting.keys[i]] = {kNone, bounded(waiting.last_uses[i]), bounded(waiting.numbers[i])};
  }
  counts_.rows = std::ssize(rows.keys);
  sweep_at_ = std::max<size_t>(1024, 2 * entries_.size());
}

namespace {

// One exchange for all tables.
// The rows of each rank, [ranks][tables].
std::vector<std::vector<int64_t>> gather_rows(std::span<const LimitedRows> tables,
                                              comm::Communicator* group) {
  std::vector<int64_t> own;
  for (const LimitedRows& table : tables) own.push_back(table.rows.counts().rows);
  // Replicas decide alike without a word.
  const bool is_alone =
      group == nullptr || std::ranges::all_of(tables, &LimitedRows::is_replicated);
  if (is_alone) return {own};
  const auto T = std::ssize(tables);
  const at::Tensor mine = at::tensor(own, at::kLong),
                   all = at::empty({group->size(), T}, at::kLong);
  group->all_gather(all.unbind(0), mine)->wait();
  std::vector<std::vector<int64_t>> rows;
  for (const auto* row = all.const_data_ptr<int64_t>(); std::ssize(rows) < group->size();
       row += T) {
    rows.emplace_back(row, row + T);
  }
  return rows;
}

// Number of this rank's rows among the first `excess` rows to be evicted over all ranks.
// most: rows that a rank sends
int64_t count_own(const LimitedRows& table, int64_t excess, int64_t most,
                  // No rank can lose more than the excess, so each sends its first ones only.
                  comm::Communicator& group) {
  const std::vector<EvictionRank> own = table.rows.first_to_evict(excess);
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();  // no last use
  const int64_t columns = table.counts_uses ? 3 : 2;
  const at::Tensor mine = at::full({most, columns}, kNever, at::kLong);
  auto* number = mine.mutable_data_ptr<int64_t>();
  for (const EvictionRank& rank : own) {
    *number++ = rank.last_use;
    *number++ = rank.key;
    if (table.counts_uses) *number++ = rank.weight;
  }
  const at::Tensor all = at::empty({group.size(), most, columns}, at::kLong);
  group.all_gather(all.unbind(0), mine)->wait();
  std::vector<EvictionRank> ranks;
  const auto* at = all.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < group.size() * most; ++i, at += columns) {
    if (at[0] == kNever) continue;
    ranks.push_back({.weight = table.counts_uses ? at[2] : 0, .last_use = at[0], .key = at[1]});
  }
  const auto last = ranks.begin() + (excess - 1);
  // The excess-th of all ranks is the border. Each rank drops its own up to there, so together
  // exactly the excess goes.
  std::ranges::nth_element(ranks, last);
  return std::ranges::upper_bound(own, *last) - own.begin();
}

}  // namespace

void keep_limits(std::span<const LimitedRows> tables, comm::Communicator* group) {
  if (tables.empty()) return;
  const std::vector<std::vector<int64_t>> rows = gather_rows(tables, group);
  for (size_t t = 0; t < tables.size(); ++t) {
    const LimitedRows& table = tables[t];
    const int64_t own = table.rows.counts().rows;
    int64_t all = 0, most = 0;
    for (const std::vector<int64_t>& of_rank : rows) {
      all += of_rank[t];
      most = std::max(most, of_rank[t]);
    }
    if (table.is_replicated) all = own;
    const int64_t excess = all - table.max_rows;
    if (excess <= 0) continue;
    TRIREME_CHECK(table.evicts, "embedding table \"", shown(table.table), "\" has ", all,
                  " rows; expected at most ", table.max_rows,
                  " (open_max_rows); allow more, evict old ones, drop rows after fewer steps or "
                  "require more uses of an id");
    const bool is_alone = table.is_replicated || rows.size() == 1;
    // Bounded by the largest rank: a rank has no more candidates than rows.
    table.rows.evict(is_alone ? excess : count_own(table, excess, std::min(excess, most), *group));
  }
}

void check_saved_rows(const std::string& table, int64_t rows, int64_t max_rows) {
  TRIREME_CHECK(max_rows == 0 || rows <= max_rows, "embedding table \"", shown(table),
                "\": the checkpoint has ", rows, " rows; expected at most ", max_rows,
                " (open_max_rows); allow more or evict old ones");
}

}  // namespace trireme::parallel
