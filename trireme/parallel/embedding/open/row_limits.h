// Keeps open vocabularies within their limits: drops rows that have expired, and when the ranks
// together have too many, those that OpenRows evicts first.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/parallel/embedding/open/open_rows.h"

namespace trireme::parallel::inline internal {

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

}  // namespace trireme::parallel::inline internal
