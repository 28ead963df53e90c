// The search of place_tables(): a first placement, moves that improve it, and cuts of tables by
// rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "trireme/plan/tables/table_cost.h"
#include "trireme/plan/tables/table_search.h"

namespace trireme::plan {

// Cuts of a table by rows that give each rank a given share of the work.
// The seconds that rows add to the rank that has them.
class RowWork {
 public:
  RowWork(const TableLoad& table, const TableRanks& ranks, const TableRates& rates);
  // The cost of the rows before `row`. Ascends.
  double before(int64_t row) const;
  double all() const { return before(table_.rows); }
  // The smallest row whose preceding rows cost this much.
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

// Plans that differ by a smaller share are equally fast: the simpler one stays.
inline constexpr double kPlanTolerance = 1e-4;

class TablePlacer {
 public:
  // Both must outlive the placer.
  TablePlacer(std::span<const TableLoad> tables, const TableSearch& search);

  // The largest tables first, each where it is best, and then moves of single tables.
  // target: seconds up to which a rank may be busy without harm
  // Throws: ConfigError when a table does not fit what the others leave
  TablePlan place(double target);
  // Improves a plan by moving single tables, and pairs unless there are too many.
  enum class Moves { kSingle, kPairs };
  TablePlan improved(TablePlan plan, Moves moves);

 private:
  struct Score {
    double largest = 0;  // seconds of the busiest rank
    double total = 0;    // of all ranks
    bool is_better_than(const Score& other) const;
  };
  struct ScoredPlace {
    TablePlace place{};
    Score score{};
  };

  void clear();
  bool place_one_by_one(double target);
  void place_by_memory();
  void improve(Moves moves);
  bool improve(size_t t);
  bool improve(size_t t, size_t other);

  void put(size_t t, TablePlace place);
  void take(size_t t);
  std::vector<TablePlace> candidates(size_t t) const;
  std::optional<Score> try_place(size_t t, const TablePlace& place, double target) const;
  std::optional<ScoredPlace> best_of(size_t t, double target) const;
  Score score() const;
  double seconds(size_t rank) const { return search_.rates.seconds(costs_[rank]); }
  std::vector<double> free_bytes() const;

  std::span<const TableLoad> tables_;
  const TableSearch& search_;
  size_t p_;
  std::vector<RowWork> work_;  // of each table
  std::vector<size_t> order_;  // of the tables, the largest first
  double largest_row_bytes_ = 0;
  double bytes_left_ = 0;  // of tables that have no place yet
  std::vector<TablePlace> places_;
  std::vector<RankCost> costs_;
};

}  // namespace trireme::plan
