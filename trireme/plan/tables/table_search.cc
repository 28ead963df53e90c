#include "trireme/plan/tables/table_search.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/plan/tables/table_placer.h"

namespace trireme::plan {
namespace {

void check_memory(std::span<const TableLoad> tables, const TableSearch& search) {
  double needed = 0;
  const TableLoad* largest = &tables.front();
  for (const TableLoad& table : tables) {
    needed += table.bytes();
    if (table.bytes() > largest->bytes()) largest = &table;
  }
  const double there_is = search.memory_bytes * search.ranks.num_ranks;
  if (needed <= there_is) return;
  const auto ranks = static_cast<int64_t>(std::ceil(needed / std::max(search.memory_bytes, 1.0)));
  throw ConfigError(concat(
      "the embedding tables with their optimizer states need ", std::llround(needed),
      " bytes, and ", search.ranks.num_ranks, " rank", search.ranks.num_ranks == 1 ? "" : "s",
      " with ", std::llround(std::max(search.memory_bytes, 0.0)), " bytes each have ",
      std::llround(needed - std::max(there_is, 0.0)), " too few; the largest table is \"",
      shown(largest->name), "\" with ", std::llround(largest->bytes()), "; use ",
      search.memory_bytes > 0 ? concat("at least ", ranks, " ranks, ") : "",
      "a smaller model.width, or fewer rows (--min-count of `trireme data prepare`)"));
}

}  // namespace

bool fits(const TablePlan& plan, const TableSearch& search) {
  return std::ranges::all_of(
      plan.costs, [&](const RankCost& cost) { return cost.memory_bytes <= search.memory_bytes; });
}

std::vector<TablePlace> all_by_rows(size_t num_tables) {
  return std::vector<TablePlace>(num_tables, {.split = TableSplit::kRows});
}

std::vector<TablePlace> whole_in_turn(size_t num_tables, int num_ranks) {
  std::vector<TablePlace> places;
  for (size_t t = 0; t < num_tables; ++t) {
    places.push_back({.split = TableSplit::kWhole,
                      .rank = static_cast<int>(t % static_cast<size_t>(num_ranks))});
  }
  return places;
}

TablePlan plan_of(std::span<const TableLoad> tables, std::vector<TablePlace> places,
                  const TableSearch& search) {
  TablePlan plan{.places = std::move(places),
                 .costs = std::vector<RankCost>(static_cast<size_t>(search.ranks.num_ranks))};
  add_headers(tables.size(), search.ranks, plan.costs);
  for (size_t t = 0; t < tables.size(); ++t) {
    add_cost(tables[t], plan.places[t], search.ranks, plan.costs);
  }
  for (const RankCost& cost : plan.costs) {
    plan.seconds = std::max(plan.seconds, search.rates.seconds(cost));
  }
  return plan;
}

// A rank is busy for at least what it sends, so all ranks together for the sum of that, which for
// rows is the same wherever they are cut.
double least_seconds(std::span<const TableLoad> tables, const TableSearch& search) {
  const TableRates& rates = search.rates;
  std::vector<RankCost> costs(static_cast<size_t>(search.ranks.num_ranks));
  const auto total = [&] {
    RankCost sum;
    for (RankCost& cost : costs) sum += std::exchange(cost, {});
    return sum.sent_near / rates.near_bytes + sum.sent_far / rates.far_bytes +
           sum.touched_bytes / rates.memory_bytes + sum.parts * rates.part_seconds;
  };
  add_headers(tables.size(), search.ranks, costs);
  double sum = total();
  for (const TableLoad& table : tables) {
    double least = 0;
    for (const TableSplit split :
         {TableSplit::kWhole, TableSplit::kReplicated, TableSplit::kColumns}) {
      if (split == TableSplit::kColumns && !table.may_split_columns) continue;
      add_cost(table, {.split = split}, search.ranks, costs);
      const double of_split = total();
      least = split == TableSplit::kWhole ? of_split : std::min(least, of_split);
    }
    sum += least;
  }
  return sum / search.ranks.num_ranks;
}

TablePlan place_tables(std::span<const TableLoad> tables, const TableSearch& search) {
  TRIREME_CHECK(!tables.empty(), "there is no embedding table to place; give at least one");
  check_memory(tables, search);
  TablePlacer placer(tables, search);
  const double least = least_seconds(tables, search);
  std::optional<TablePlan> best;
  const auto consider = [&](TablePlan plan) {
    if (!best || plan.seconds < best->seconds * (1 - kPlanTolerance)) best = std::move(plan);
  };
  // With a higher target more tables stay whole before the others fill the ranks up.
  for (const double factor : {0.0, 1.0, 1.05, 1.2, 1.5}) consider(placer.place(factor * least));
  for (const std::vector<TablePlace>& places :
       {whole_in_turn(tables.size(), search.ranks.num_ranks), all_by_rows(tables.size())}) {
    TablePlan plan = plan_of(tables, places, search);
    if (fits(plan, search)) {
      consider(placer.improved(std::move(plan), TablePlacer::Moves::kSingle));
    }
  }
  return placer.improved(*std::move(best), TablePlacer::Moves::kPairs);
}

}  // namespace trireme::plan
