#include "trireme/plan/tables/table_search.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

TableSearch search_of(int num_ranks, double memory_bytes = 1e12, int ranks_per_node = 8) {
  return {.ranks = {.num_ranks = num_ranks, .ranks_per_node = ranks_per_node},
          .rates = {.near_bytes = 4e9, .far_bytes = 1e9, .memory_bytes = 6e9, .part_seconds = 1e-5},
          .memory_bytes = memory_bytes};
}

// A table that a rank's step uses `distinct` rows of, hotter towards its front by `skew`.
TableLoad load_of(int64_t rows, double distinct, double skew, int64_t width = 16) {
  std::vector<RowCounts> buckets(static_cast<size_t>(std::min<int64_t>(rows, 64)));
  double all = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const double weight = std::pow(static_cast<double>(i + 1), -skew);
    buckets[i] = {.distinct = weight, .sums = weight, .updated = 1.5 * weight};
    all += weight;
  }
  for (RowCounts& bucket : buckets) bucket = bucket * (distinct / all);
  return {.name = "t", .rows = rows, .width = width, .use = {RowUse(rows, buckets)}};
}

std::vector<TableLoad> draw_tables(harness::Draw& draw, size_t count, int64_t least_rows = 2) {
  std::vector<TableLoad> tables;
  for (size_t t = 0; t < count; ++t) {
    const int64_t rows = least_rows << draw.below(12);
    const double distinct = std::min(static_cast<double>(rows), 10.0 + draw.below(3000));
    tables.push_back(load_of(rows, distinct, 0.1 * draw.below(12), 4 << draw.below(4)));
    tables.back().may_split_columns = draw.below(2) == 0;
  }
  return tables;
}

// The fastest placement of all: each table replicated, by columns, by even rows, or whole on a
// rank.
double fastest_of_all(const std::vector<TableLoad>& tables, const TableSearch& search) {
  double fastest = 1e9;
  std::vector<TablePlace> places(tables.size());
  const std::function<void(size_t)> place = [&](size_t t) {
    if (t == tables.size()) {
      const TablePlan plan = plan_of(tables, places, search);
      const bool fits = std::ranges::all_of(plan.costs, [&](const RankCost& cost) {
        return cost.memory_bytes <= search.memory_bytes;
      });
      if (fits) fastest = std::min(fastest, plan.seconds);
      return;
    }
    for (const TableSplit split :
         {TableSplit::kReplicated, TableSplit::kRows, TableSplit::kColumns}) {
      if (split == TableSplit::kColumns && !tables[t].may_split_columns) continue;
      places[t] = {.split = split};
      place(t + 1);
    }
    for (int rank = 0; rank < search.ranks.num_ranks; ++rank) {
      places[t] = {.split = TableSplit::kWhole, .rank = rank};
      place(t + 1);
    }
  };
  place(0);
  return fastest;
}

TEST(TableSearch, IsAsFastAsTheFastestOfAllPlacements) {
  harness::Draw draw(7);
  double largest = 0, sum = 0;
  constexpr int kRuns = 60;
  for (int run = 0; run < kRuns; ++run) {
    const int p = 2 + draw.below(2);
    const std::vector<TableLoad> tables = draw_tables(draw, 1 + draw.below(size_t{5}));
    const TableSearch search = search_of(p);
    const TablePlan plan = place_tables(tables, search);
    const double ratio = plan.seconds / fastest_of_all(tables, search);
    largest = std::max(largest, ratio);
    sum += ratio;
  }
  RecordProperty("largest", std::to_string(largest));
  RecordProperty("mean", std::to_string(sum / kRuns));
  EXPECT_LE(largest, 1.01);
  EXPECT_LE(sum / kRuns, 0.95);
}

TEST(TableSearch, IsAsFastWhereMemoryIsShort) {
  harness::Draw draw(11);
  for (int run = 0; run < 40; ++run) {
    const int p = 2 + draw.below(2);
    const std::vector<TableLoad> tables = draw_tables(draw, 1 + draw.below(size_t{4}), 64);
    double bytes = 0;
    for (const TableLoad& table : tables) bytes += table.bytes();
    const TableSearch search = search_of(p, std::ceil(bytes * 1.2 / p));
    const TablePlan plan = place_tables(tables, search);
    for (const RankCost& cost : plan.costs) EXPECT_LE(cost.memory_bytes, search.memory_bytes);
    EXPECT_LE(plan.seconds, 1.05 * fastest_of_all(tables, search));
  }
}

TEST(TableSearch, IsNeverFasterThanItsBound) {
  harness::Draw draw(3);
  for (const int p : {1, 2, 4, 16}) {
    for (const int ranks_per_node : {1, 2, 8}) {
      const std::vector<TableLoad> tables = draw_tables(draw, 9);
      const TableSearch search = search_of(p, 1e12, std::min(p, ranks_per_node));
      const double least = least_seconds(tables, search);
      EXPECT_GE(place_tables(tables, search).seconds, least * (1 - 1e-9));
      EXPECT_GE(plan_of(tables, all_by_rows(9), search).seconds, least * (1 - 1e-9));
      EXPECT_GE(plan_of(tables, whole_in_turn(9, p), search).seconds, least * (1 - 1e-9));
    }
  }
}

TEST(TableSearch, CutsHotRowsSoThatRanksAreEquallyBusy) {
  const std::vector<TableLoad> tables{load_of(1 << 20, 50000, 1.2)};
  const TableSearch search = search_of(4);
  const auto busy = [&](const RankCost& cost) { return search.rates.seconds(cost); };
  const TablePlan rows = plan_of(tables, all_by_rows(1), search);
  const TablePlan plan = place_tables(tables, search);
  EXPECT_GT(imbalance(std::span<const RankCost>(rows.costs), busy), 1.5);
  EXPECT_LT(imbalance(std::span<const RankCost>(plan.costs), busy), 1.05);
  EXPECT_EQ(plan.places[0].split, TableSplit::kRows);
  EXPECT_LT(plan.places[0].cuts[1], 1 << 17);
}

TEST(TableSearch, KeepsSmallTablesWhole) {
  const std::vector<TableLoad> tables(8, load_of(1000, 400, 0));
  const TablePlan plan = place_tables(tables, search_of(4));
  for (const TablePlace& place : plan.places) EXPECT_EQ(place.split, TableSplit::kWhole);
  for (const RankCost& cost : plan.costs) EXPECT_EQ(cost.parts, 2);
}

TEST(TableSearch, FillsMemoryToTheLastRow) {
  const std::vector<TableLoad> tables{load_of(1000, 10, 0), load_of(500, 10, 1), load_of(3, 3, 0)};
  const double row = tables[0].row_bytes(16);
  const TablePlan plan = place_tables(tables, search_of(3, 501 * row));
  for (const RankCost& cost : plan.costs) EXPECT_EQ(cost.memory_bytes, 501 * row);
}

TEST(TableSearch, SaysByHowMuchTablesDoNotFit) {
  TableLoad large = load_of(1000, 10, 0);
  large.name = "user";
  const std::vector<TableLoad> tables{load_of(10, 10, 0), large};
  try {
    place_tables(tables, search_of(2, 30000));
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "the embedding tables with their optimizer states need 64640 bytes, and 2 ranks "
                 "with 30000 bytes each have 4640 too few; the largest table is \"user\" with "
                 "64000; use at least 3 ranks, a smaller model.width, or fewer rows (--min-count "
                 "of `trireme data prepare`)");
  }
  EXPECT_THROW(place_tables(tables, search_of(2, 0)), ConfigError);
  EXPECT_THROW(place_tables({}, search_of(2)), ConfigError);
}

TEST(TableSearch, IsNoSlowerThanSimplePlacements) {
  harness::Draw draw(13);
  for (const int p : {2, 5, 8, 32, 64}) {
    for (const size_t count : {size_t{3}, size_t{26}}) {
      const std::vector<TableLoad> tables = draw_tables(draw, count);
      const TableSearch search = search_of(p);
      const double seconds = place_tables(tables, search).seconds * (1 - 1e-3);
      EXPECT_LE(seconds, plan_of(tables, all_by_rows(count), search).seconds) << p;
      EXPECT_LE(seconds, plan_of(tables, whole_in_turn(count, p), search).seconds) << p;
    }
  }
}

TEST(TableSearch, FindsTheSameEachTime) {
  harness::Draw draw(5);
  const std::vector<TableLoad> tables = draw_tables(draw, 40);
  const TableSearch search = search_of(16);
  EXPECT_EQ(place_tables(tables, search).places, place_tables(tables, search).places);
}

TEST(TableSearch, PlacesHundredsOfTables) {
  harness::Draw draw(9);
  const std::vector<TableLoad> tables = draw_tables(draw, 300);
  const TableSearch search = search_of(32);
  const TablePlan plan = place_tables(tables, search);
  EXPECT_LE(plan.seconds, 1.05 * least_seconds(tables, search));
}

}  // namespace
}  // namespace trireme::plan
