// Where to cut a table by rows, so that each rank has a given share of the work.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/plan/tables/table_cost.h"

namespace trireme::plan::inline internal {

// The seconds that rows add to the rank that has them.
class RowWork {
 public:
  RowWork(const TableLoad& table, const TableRanks& ranks, const TableRates& rates);
  // Of the rows before `row`. Ascends.
  double before(int64_t row) const;
  double all() const { return before(table_.rows); }
  // The smallest row before which there is this much.
  int64_t row_at(double seconds) const;

 private:
  const TableLoad& table_;
  double distinct_seconds_, sums_seconds_, updated_seconds_;
};

// Cuts that give rank r the share shares[r] of the work.
// shares: [p], not negative, with a sum above 0
std::vector<int64_t> cuts_by_share(const RowWork& work, int64_t rows,
                                   std::span<const double> shares);

// Shares with which the ranks end up as equally loaded as can be.
// seconds: [p] of each rank before the table comes
std::vector<double> levelling_shares(std::span<const double> seconds, double work_seconds);

// Cuts that leave each rank about the same part of its free memory; empty when the table does not
// fit.
// free_bytes: [p]
std::vector<int64_t> cuts_by_memory(int64_t rows, double row_bytes,
                                    std::span<const double> free_bytes);

}  // namespace trireme::plan::inline internal
