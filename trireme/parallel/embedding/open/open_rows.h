// The keys of an open vocabulary that have a row, and the limits within which ranks keep them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <c10/util/flat_hash_map.h>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/embedding/open/eviction_heap.h"

namespace trireme::parallel {

// The keys of an open vocabulary that have a row on this rank, and the slots of these rows.
// Decisions depend only on the steps in which keys were used, not on other keys or on where rows
// lie.
// Source: Liu et al. 2022, "Monolith: real time recommendation system with collisionless embedding
//         table", arXiv:2209.07663, section 2.2 (filtering by uses and expiry)

// The order of eviction.
enum class Evicts { kNone, kOldest, kRarest };

struct OpenRowsOptions {
  std::string table{};       // for messages
  int64_t expire_steps = 0;  // 0: never
  int64_t min_uses = 1;
  Evicts evicts = Evicts::kOldest;  // kNone saves the time for the order of rows
  int64_t halve_steps = 0;          // kRarest: see eviction_heap.h; 0: never
  // Hears of each slot whose row is dropped, but for load().
  std::function<void(int64_t slot)> on_drop{};
};

// Keys with their numbers, by rising key.
struct OpenKeys {
  std::vector<int64_t> keys{};
  std::vector<int64_t> last_uses{};  // the step of each
  std::vector<int64_t> numbers{};    // rows: their slots; keys that wait: their uses so far
  std::vector<float> uses{};         // rows: as of the last one; only with kRarest
};

// Counts of this rank's rows since the vocabulary was created.
struct OpenCounts {
  int64_t rows = 0;     // that are there now
  int64_t begun = 0;    // new rows
  int64_t expired = 0;  // dropped after open_expire_steps
  int64_t evicted = 0;  // dropped to make room
};

class OpenRows {
 public:
  static constexpr int64_t kNone = -1;

  explicit OpenRows(OpenRowsOptions options);

  // The slot of a key's row after `num_steps` steps; kNone: it has none.
  int64_t find(int64_t key, int64_t num_steps) const;

  struct Use {
    int64_t slot;  // kNone: the key has too few uses for a row
    bool is_new;   // the row begins with this step
  };
  // A use in step `step`, which is the last one that has begun. Once for each key and step, those
  // of a step by rising key.
  Use use(int64_t key, int64_t step);
  // Drops the rows that have expired after `num_steps` steps.
  void expire(int64_t num_steps);
  // The first of the rows that would be evicted, at most `count`. Not with kNone.
  std::vector<EvictionRank> first_to_evict(int64_t count);
  // Drops the first of them.
  void evict(int64_t count);

  bool counts_uses() const { return counts_uses_; }
  // Slots are below it.
  int64_t num_slots() const { return std::ssize(links_) - 1; }
  const OpenCounts& counts() const { return counts_; }
  OpenKeys rows(int64_t num_steps) const { return list(num_steps, /*has_row=*/true); }
  OpenKeys waiting(int64_t num_steps) const { return list(num_steps, /*has_row=*/false); }
  // Replaces all rows. Row i of `rows` gets slot i; `rows.numbers` is not read. Without `uses`,
  // each row has one use.
  void load(const OpenKeys& rows, const OpenKeys& waiting);

 private:
  using Slot = uint32_t;  // of a ring: 0 is its end, slot s is number s + 1
  struct Entry {
    int64_t slot = kNone;
    int32_t last_use = 0;
    int32_t uses = 0;  // of a row with kRarest, the bits of its uses in fp32
  };
  // The rows in a ring, if keeps_order_: in the order of their last uses, in one step by key.
  struct Link {
    int64_t key = 0;
    Slot before = 0, after = 0;
  };
  bool is_expired(const Entry& entry, int64_t num_steps) const {
    return options_.expire_steps > 0 && num_steps - entry.last_use >= options_.expire_steps;
  }
  OpenKeys list(int64_t num_steps, bool has_row) const;
  int64_t take_slot();
  void append(int64_t slot, int64_t key);
  void unlink(int64_t slot);
  EvictionRank rank_of(int64_t key, const Entry& entry) const;
  using Place = ska::flat_hash_map<int64_t, Entry>::iterator;
  void drop_row(Place place);
  // The place of the least recently used row.
  Place find_oldest() { return entries_.find(links_[links_[0].after].key); }
  // Removes keys that have expired while they waited.
  void sweep(int64_t num_steps);

  OpenRowsOptions options_;
  bool keeps_order_;
  bool counts_uses_;
  ska::flat_hash_map<int64_t, Entry> entries_;
  std::vector<Link> links_;    // [1 + slots]
  std::vector<int64_t> free_;  // slots
  EvictionHeap heap_;          // the rows, if counts_uses_
  OpenCounts counts_;
  size_t sweep_at_ = 1024;  // entries
};

// Keeps open vocabularies within their limits: drops rows that have expired, and when the ranks
// together have too many, those that OpenRows evicts first.
// One table with a limit.
struct LimitedRows {
  OpenRows& rows;  // of this rank
  std::string table{};
  int64_t max_rows = 0;  // on all ranks
  bool evicts = true;    // otherwise too many are an error
  bool is_replicated = false;
  bool counts_uses = false;  // the rows are evicted by them
};

// After a step. Rows are evicted in an order that is theirs, so which of them stay depends neither
// on the ranks nor on the placement.
// group: null for one rank
// Comm:       to each other rank 8 bytes for each table; where e rows are too many, 16 for each of
//             the min(e, rows of the rank with most of them) rows that go first, or 24 if it
//             counts uses. Nothing for replicated tables.
// Collective: every rank of the group
// Throws:     ConfigError on every rank, when there are too many and they are not evicted
void keep_limits(std::span<const LimitedRows> tables, comm::Communicator* group);

// Throws: ConfigError when a checkpoint has more rows than may be. max_rows: 0: no limit
void check_saved_rows(const std::string& table, int64_t rows, int64_t max_rows);

}  // namespace trireme::parallel
