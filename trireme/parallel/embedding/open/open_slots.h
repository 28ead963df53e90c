// In which slots of memory the rows of an open vocabulary are: those that it has and, until a step
// is done, those of keys without a row. Rows are in slots of their own, or on a disk with a slot
// while they are used.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "trireme/parallel/embedding/disk/disk_rows.h"
#include "trireme/parallel/embedding/open/open_rows.h"

namespace trireme::parallel {

struct OpenSlotsOptions {
  OpenRowsOptions rows{};
  // Writes the first values of a key's row into a slot.
  std::function<void(int64_t key, int64_t slot)> begin_row{};
  // Its rows are the numbers of OpenRows. Null: these are the slots, and those of keys without a
  // row come after them.
  std::shared_ptr<DiskRows> disk{};
};

// Not thread safe.
class OpenSlots {
 public:
  explicit OpenSlots(OpenSlotsOptions options);
  OpenSlots(const OpenSlots&) = delete;
  OpenSlots& operator=(const OpenSlots&) = delete;

  // The slots of `keys`, distinct, after `num_steps` steps, until release().
  // Throws: as DiskRows::fetch(); so does fetch_used(), which may also grow the disk
  void fetch(std::span<const int64_t> keys, int64_t num_steps, std::vector<int64_t>& slots);
  // The same for a use of each in step `step`; ascending.
  void fetch_used(std::span<const int64_t> keys, int64_t step, std::vector<int64_t>& slots);
  void release();
  // Begins to read rows that fetch() will want.
  void prefetch(std::span<const int64_t> keys, int64_t num_steps);

  OpenRows& rows() { return rows_; }
  DiskRows* disk() { return options_.disk.get(); }

 private:
  void bring(std::vector<int64_t>& numbers);
  void lend(std::span<const int64_t> keys, std::vector<int64_t>& slots);

  OpenSlotsOptions options_;
  OpenRows rows_;
  int64_t num_lent_ = 0;
  std::vector<bool> is_new_;
  std::vector<int64_t> wanted_, found_;
};

}  // namespace trireme::parallel
