// The search of place_tables(): a first placement, and moves that improve it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "trireme/plan/tables/table_cuts.h"
#include "trireme/plan/tables/table_search.h"

namespace trireme::plan::inline internal {

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
  // What moves of single tables, and of pairs unless there are too many, make of a plan.
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

}  // namespace trireme::plan::inline internal
