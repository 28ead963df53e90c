// Which keys of an open vocabulary have a row on this rank, and in which slot. What it decides
// depends only on the steps in which keys were used, not on other keys or on where rows lie.
// Source: Liu et al. 2022, "Monolith: real time recommendation system with collisionless embedding
//         table", arXiv:2209.07663, section 2.2 (filtering by uses and expiry)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <c10/util/flat_hash_map.h>

namespace trireme::parallel::inline internal {

struct OpenRowsOptions {
  std::string table{};       // for messages
  int64_t max_rows = 0;      // 0: as many as there are
  int64_t expire_steps = 0;  // 0: never
  int64_t min_uses = 1;
};

// Keys with their numbers, by rising key.
struct OpenKeys {
  std::vector<int64_t> keys{};
  std::vector<int64_t> last_uses{};  // the step of each
  std::vector<int64_t> numbers{};    // rows: their slots; keys that wait: their uses so far
};

class OpenRows {
 public:
  static constexpr int64_t kNone = -1;

  explicit OpenRows(OpenRowsOptions options) : options_(std::move(options)) {}

  // The slot of a key's row after `num_steps` steps; kNone: it has none.
  int64_t find(int64_t key, int64_t num_steps) const;

  struct Use {
    int64_t slot;  // kNone: the key has too few uses for a row
    bool is_new;   // the row begins with this step
  };
  // A use in step `step`, which is the last one that has begun. Once for each key and step.
  // Throws: ConfigError when there would be more than max_rows rows
  Use use(int64_t key, int64_t step);

  // Slots are below it.
  int64_t num_slots() const { return num_slots_; }
  OpenKeys rows(int64_t num_steps) const { return list(num_steps, /*has_row=*/true); }
  OpenKeys waiting(int64_t num_steps) const { return list(num_steps, /*has_row=*/false); }
  // Forgets all. Row i of `rows`, of which `numbers` is not read, gets slot i.
  // Throws: ConfigError when there are more than max_rows rows
  void load(const OpenKeys& rows, const OpenKeys& waiting);

 private:
  struct Entry {
    int64_t slot = kNone;
    int32_t last_use = 0;
    int32_t uses = 0;
  };
  bool is_expired(const Entry& entry, int64_t num_steps) const {
    return options_.expire_steps > 0 && num_steps - entry.last_use >= options_.expire_steps;
  }
  OpenKeys list(int64_t num_steps, bool has_row) const;
  int64_t num_rows() const { return num_slots_ - static_cast<int64_t>(free_.size()); }
  bool is_full() const { return options_.max_rows > 0 && num_rows() >= options_.max_rows; }
  int64_t take_slot(int64_t step);
  // Removes what has expired.
  void sweep(int64_t num_steps);

  OpenRowsOptions options_;
  ska::flat_hash_map<int64_t, Entry> entries_;
  std::vector<int64_t> free_;  // slots below num_slots_
  int64_t num_slots_ = 0;
  size_t sweep_at_ = 1024;  // entries
};

}  // namespace trireme::parallel::inline internal
