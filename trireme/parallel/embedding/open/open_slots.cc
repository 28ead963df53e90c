#include "trireme/parallel/embedding/open/open_slots.h"

#include <utility>

namespace trireme::parallel {
namespace {

OpenRowsOptions with_disk(OpenRowsOptions options, const std::shared_ptr<DiskRows>& disk) {
  // The number may be another key's next, which must not find the old row.
  if (disk) options.on_drop = [disk = disk.get()](int64_t number) { disk->forget(number); };
  return options;
}

}  // namespace

OpenSlots::OpenSlots(OpenSlotsOptions options)
    : options_(std::move(options)), rows_(with_disk(options_.rows, options_.disk)) {}

// Numbers of rows become their slots.
void OpenSlots::bring(std::vector<int64_t>& numbers) {
  if (!options_.disk) return;
  wanted_.clear();
  for (const int64_t number : numbers) {
    if (number != OpenRows::kNone) wanted_.push_back(number);
  }
  // Before the fetch, which checks its rows.
  options_.disk->grow(rows_.num_slots());
  found_.clear();
  options_.disk->fetch(wanted_, found_);
  auto slot = found_.begin();
  for (int64_t& number : numbers) {
    if (number != OpenRows::kNone) number = *slot++;
  }
}

// Keys without a slot get one with their first values.
void OpenSlots::lend(std::span<const int64_t> keys, std::vector<int64_t>& slots) {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (slots[i] != OpenRows::kNone) continue;
    // Behind the rows that exist: a key that is only looked up must get values and must not get a
    // row.
    slots[i] = options_.disk ? options_.disk->lend() : rows_.num_slots() + num_lent_++;
    options_.begin_row(keys[i], slots[i]);
  }
}

void OpenSlots::fetch(std::span<const int64_t> keys, int64_t num_steps,
                      std::vector<int64_t>& slots) {
  slots.clear();
  for (const int64_t key : keys) slots.push_back(rows_.find(key, num_steps));
  bring(slots);
  lend(keys, slots);
}

void OpenSlots::fetch_used(std::span<const int64_t> keys, int64_t step,
                           std::vector<int64_t>& slots) {
  slots.clear();
  is_new_.clear();
  for (const int64_t key : keys) {
    const auto [number, is_new] = rows_.use(key, step);
    slots.push_back(number);
    is_new_.push_back(is_new);
  }
  bring(slots);
  // After all rows are in memory: their slots are known now.
  for (size_t i = 0; i < keys.size(); ++i) {
    if (is_new_[i]) options_.begin_row(keys[i], slots[i]);
  }
  lend(keys, slots);
}

void OpenSlots::release() {
  num_lent_ = 0;
  if (options_.disk) options_.disk->release();
}

void OpenSlots::prefetch(std::span<const int64_t> keys, int64_t num_steps) {
  if (!options_.disk) return;
  wanted_.clear();
  for (const int64_t key : keys) {
    const int64_t number = rows_.find(key, num_steps);
    if (number != OpenRows::kNone) wanted_.push_back(number);
  }
  options_.disk->prefetch(wanted_);
}

}  // namespace trireme::parallel
