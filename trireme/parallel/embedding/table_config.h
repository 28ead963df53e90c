// The configuration of an embedding table, and which rank holds which part of it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/mesh/layout.h"

namespace trireme::parallel {

// Combines the rows of a sample into one vector. kNone: no combination, one vector per id.
enum class Pooling { kSum, kMean, kNone };
inline constexpr Choice<Pooling> kPoolings[] = {
    {"sum", Pooling::kSum}, {"mean", Pooling::kMean}, {"none", Pooling::kNone}};

// The policy for an open vocabulary with more rows than its limit.
enum class FullTable {
  kEvict,        // the least recently used ids lose their rows
  kEvictRarest,  // those with the fewest recent uses lose them
  kRefuse,       // the step fails
};
inline constexpr Choice<FullTable> kFullTables[] = {{"evict", FullTable::kEvict},
                                                    {"evict-rarest", FullTable::kEvictRarest},
                                                    {"refuse", FullTable::kRefuse}};

// Steps after which the uses that kEvictRarest has counted are halved.
inline constexpr int64_t kOpenHalveSteps = 100;

// `rows` of every table with an open vocabulary: the parts into which placements can split it.
inline constexpr int64_t kOpenRows = int64_t{1} << 32;

struct TableConfig {
  std::string name;
  int64_t rows = 0;   // ids are 0 to rows - 1
  int64_t width = 0;  // D
  Pooling pooling = Pooling::kSum;
  // Each id comes with a weight, which multiplies its row. Only with kSum.
  bool is_weighted = false;
  // Over the one axis of the ranks:
  //   replicated()      each rank holds the table; ids do not travel in forward
  //   sharded(0, cuts)  by rows; see whole_on() and rows_on()
  //   sharded(1, cuts)  by columns
  mesh::Placement placement{};
  // A limit on the bytes of this rank's rows and optimizer states in memory, which holds those used
  // most. The others are in a file in `folder`. 0: all are in memory.
  int64_t memory_bytes = 0;
  std::string folder{};
  // Initial values are uniform in [-scale, scale). 0: 1 / sqrt(rows), of an open table 0.01.
  double initial_scale = 0;

  // An open vocabulary: ids are any 64-bit numbers, and each has a row of its own from the first
  // step on that uses it. Before that it reads its initial value. `rows` is kOpenRows; which part
  // an id is in depends only on the id. Not by columns.
  bool is_open = false;
  int64_t open_max_rows = 0;  // after a step, on all ranks together; 0: no limit
  FullTable open_when_full = FullTable::kEvict;
  int64_t open_halve_steps = kOpenHalveSteps;  // with kEvictRarest; 0: never
  int64_t open_expire_steps = 0;  // drops rows that as many steps have not used; 0: never
  int64_t open_min_uses = 1;      // an id gets its row in the step that uses it for this time
};

// The placement of a table of `rows` rows that lies whole on `rank` of `num_ranks`.
// Throws: ConfigError when there is no such rank
mesh::Placement whole_on(int rank, int64_t rows, int num_ranks);

// The rows split evenly over the `count` ranks from `first` on, such as the ranks of one host.
// Throws: ConfigError when there are no such ranks
mesh::Placement rows_on(int first, int count, int64_t rows, int num_ranks);

// The table's layout, [rows, width] over `axis`. Checkpoints reshard by it.
// Throws: ConfigError when the placement does not fit the table
mesh::Layout layout_of(const TableConfig& table, const mesh::Axis& axis);

// Throws: ConfigError when there is no table, when a name is missing or repeated, when a size is
//         below 1, for weights without kSum, for partial sums, for a
//         memory limit below 0 or without a folder, for an initial scale below 0, and for an open
//         table that TableConfig does not allow
void check_tables(std::span<const TableConfig> tables);

}  // namespace trireme::parallel
