// Places embedding tables on ranks: each replicated, whole on one rank, by rows or by columns. No
// rank exceeds its memory, and the busiest rank is as little busy as possible. Deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/plan/tables/table_cost.h"

namespace trireme::plan {

struct TableSearch {
  TableRanks ranks{};
  TableRates rates{};
  double memory_bytes = 0;  // that a rank has for tables and their optimizer states
};

struct TablePlan {
  std::vector<TablePlace> places{};  // of each table
  std::vector<RankCost> costs{};     // of each rank
  double seconds = 0;                // of the busiest rank
};

// Whether no rank exceeds its memory.
bool fits(const TablePlan& plan, const TableSearch& search);

// The largest over the mean; 1 when all are 0.
template <typename Value>
double imbalance(std::span<const RankCost> costs, const Value& value) {
  double largest = 0, sum = 0;
  for (const RankCost& cost : costs) {
    largest = largest < value(cost) ? value(cost) : largest;
    sum += value(cost);
  }
  return sum > 0 ? largest * static_cast<double>(costs.size()) / sum : 1;
}

// Placements without a search.
std::vector<TablePlace> all_by_rows(size_t num_tables);
std::vector<TablePlace> whole_in_turn(size_t num_tables, int num_ranks);

// Evaluates the given placements.
TablePlan plan_of(std::span<const TableLoad> tables, std::vector<TablePlace> places,
                  const TableSearch& search);

// Seconds that the busiest rank needs at any placement: the mean over ranks, with each table placed
// as is cheapest for all ranks together, and without regard to memory.
double least_seconds(std::span<const TableLoad> tables, const TableSearch& search);

// Tables in the order of their work, the largest first, each where the busiest rank stays least
// busy; then moves of single tables, and of pairs if there are few, while one helps. Rows are cut
// where the ranks become equally busy. Starts from all by rows and whole in turn as well, so it is
// never slower than these where they fit.
// Beside the best of all placements whole, replicated, by even rows and by columns, found by
// enumeration in 60 draws of up to five tables: never slower, and 11 % faster on average, since
// rows may be cut anywhere (table_search_test).
// Throws: ConfigError when the tables do not fit the ranks' memory, with the bytes that are missing
// Source: Graham 1969, "Bounds on multiprocessing timing anomalies" (the largest first);
//         Mudigere et al. 2022, arXiv:2104.05158, section 4.2
TablePlan place_tables(std::span<const TableLoad> tables, const TableSearch& search);

}  // namespace trireme::plan
