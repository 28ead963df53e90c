#include "trireme/plan/tables/table_cost.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

// Each rank uses 6 of 12 rows, evenly; all together 10.
TableLoad table() {
  return {.name = "t",
          .rows = 12,
          .width = 8,
          .states_per_number = 1,
          .bytes_per_row = 4,
          .use = {RowUse::even(12, {.distinct = 6, .sums = 6, .updated = 10})}};
}

std::vector<RankCost> costs_at(const TableLoad& load, const TablePlace& place,
                               const TableRanks& ranks) {
  std::vector<RankCost> costs(static_cast<size_t>(ranks.num_ranks));
  add_cost(load, place, ranks, costs);
  return costs;
}

const TableRanks kThree{.num_ranks = 3, .ranks_per_node = 3};

TEST(TableCost, CountsATableOnOneRank) {
  const auto costs = costs_at(table(), {.split = TableSplit::kWhole, .rank = 1}, kThree);
  EXPECT_EQ(costs[1].memory_bytes, 12 * (2 * 8 * 4 + 4));
  EXPECT_EQ(costs[0].memory_bytes, 0);
  EXPECT_EQ(costs[1].rows_read, 3 * 6);
  EXPECT_EQ(costs[1].gradients_added, 3 * 6);
  EXPECT_EQ(costs[1].rows_updated, 10);
  EXPECT_EQ(costs[1].sent(), 2 * 6 * 8 * 4);
  EXPECT_EQ(costs[1].received(), 2 * 6 * (4 + 8 * 4));
  EXPECT_EQ(costs[0].sent(), 6 * (4 + 8 * 4));
  EXPECT_EQ(costs[0].received(), 6 * 8 * 4);
  EXPECT_EQ(costs[2].parts, 0);
}

TEST(TableCost, CountsReplicasThatSendGradientsToAll) {
  const auto costs = costs_at(table(), {.split = TableSplit::kReplicated}, kThree);
  for (const RankCost& cost : costs) {
    EXPECT_EQ(cost.memory_bytes, table().bytes());
    EXPECT_EQ(cost.sent(), 2 * 6 * (4 + 8 * 4));
    EXPECT_EQ(cost.received(), cost.sent());
    EXPECT_EQ(cost.rows_read, 6);
    EXPECT_EQ(cost.gradients_added, 18);
    EXPECT_EQ(cost.rows_updated, 10);
  }
}

TEST(TableCost, CountsRowsAtTheirCuts) {
  const auto costs = costs_at(table(), {.split = TableSplit::kRows, .cuts = {0, 8, 8, 12}}, kThree);
  EXPECT_EQ(costs[0].memory_bytes, 8 * table().row_bytes(8));
  EXPECT_EQ(costs[1].memory_bytes, 0);
  EXPECT_NEAR(costs[0].rows_read, 3 * 4, 1e-12);
  EXPECT_NEAR(costs[2].rows_read, 3 * 2, 1e-12);
  EXPECT_NEAR(costs[0].sent(), 2 * 36 + 2 * 4 * 32, 1e-9);
  EXPECT_NEAR(costs[1].sent(), 6 * 36, 1e-9);
}

TEST(TableCost, SendsIdsToEachRankWithColumns) {
  const auto costs = costs_at(table(), {.split = TableSplit::kColumns}, kThree);  // 3, 3, 2
  EXPECT_EQ(costs[0].memory_bytes, 12 * (2 * 3 * 4 + 4));
  EXPECT_EQ(costs[2].memory_bytes, 12 * (2 * 2 * 4 + 4));
  EXPECT_EQ(costs[0].sent(), 6 * (4 + 3 * 4) + 6 * (4 + 2 * 4) + 2 * 6 * 3 * 4);
}

// For each of the ten rows that the ranks update, two numbers of the columns 0 to 2, two of 3 to 5
// and one of 6 and 7.
TEST(TableCost, SendsSquaresOfRowsToEachRank) {
  TableLoad load = table();
  const auto before = costs_at(load, {.split = TableSplit::kColumns}, kThree);
  load.sums_squares = true;
  const auto after = costs_at(load, {.split = TableSplit::kColumns}, kThree);
  const double numbers[] = {2, 2, 1};
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(after[r].sent() - before[r].sent(), 2 * 10 * 4 * numbers[r]);
    EXPECT_EQ(after[r].received() - before[r].received(), 10 * 4 * (5 - numbers[r]));
    EXPECT_EQ(after[r].memory_bytes, before[r].memory_bytes);
  }
  EXPECT_EQ(costs_at(load, {}, kThree)[0].sent(), costs_at(table(), {}, kThree)[0].sent());
}

TEST(TableCost, HasTheMemoryOfTheRowsInUse) {
  TableLoad load = table();
  const double row_bytes = load.row_bytes(load.width);
  load.rows = int64_t{1} << 32;
  load.rows_in_use = 1200;
  load.use = {RowUse::even(load.rows, {.distinct = 6, .sums = 6, .updated = 6})};
  EXPECT_EQ(load.bytes(), 1200 * row_bytes);
  const auto costs = costs_at(load, {.split = TableSplit::kRows}, kThree);
  for (const RankCost& cost : costs) EXPECT_NEAR(cost.memory_bytes, 400 * row_bytes, 1e-3);
  EXPECT_NEAR(costs[0].touched_bytes, costs[1].touched_bytes, 1e-3);
}

TEST(TableCost, SendsSetsOfSubtreesAndWideIds) {
  TableLoad load = table();
  load.use = {RowUse::even(12, {.distinct = 6, .sums = 9, .updated = 10}, 9)};
  const auto costs = costs_at(load, {.split = TableSplit::kWhole, .rank = 0}, kThree);
  EXPECT_EQ(costs[1].sent(), 6 * (4 + 2) + 9 * 32);
  load.rows = (int64_t{1} << 31) + 1;
  load.use = {RowUse::even(load.rows, {.distinct = 6, .sums = 6})};
  EXPECT_EQ(costs_at(load, {.split = TableSplit::kWhole}, kThree)[1].sent(), 6 * (8 + 32));
}

TEST(TableCost, IsTheSameForRanksThatAreAlikeAndForEachOfThem) {
  for (const int p : {1, 2, 4, 6}) {
    const TableRanks ranks{.num_ranks = p, .ranks_per_node = 2};
    TableLoad alike = table(), each = table();
    alike.sums_squares = each.sums_squares = true;
    each.use = std::vector<RowUse>(static_cast<size_t>(p), table().use[0]);
    for (const TablePlace& place :
         {TablePlace{.split = TableSplit::kReplicated},
          TablePlace{.split = TableSplit::kWhole, .rank = p - 1},
          TablePlace{.split = TableSplit::kRows}, TablePlace{.split = TableSplit::kColumns}}) {
      const auto a = costs_at(alike, place, ranks), b = costs_at(each, place, ranks);
      for (size_t r = 0; r < a.size(); ++r) {
        EXPECT_NEAR(a[r].sent_near, b[r].sent_near, 1e-9);
        EXPECT_NEAR(a[r].sent_far, b[r].sent_far, 1e-9);
        EXPECT_NEAR(a[r].received_near, b[r].received_near, 1e-9);
        EXPECT_NEAR(a[r].received_far, b[r].received_far, 1e-9);
        EXPECT_NEAR(a[r].rows_read, b[r].rows_read, 1e-9);
        EXPECT_NEAR(a[r].gradients_added, b[r].gradients_added, 1e-9);
        EXPECT_NEAR(a[r].touched_bytes, b[r].touched_bytes, 1e-9);
      }
    }
  }
}

TEST(TableCost, SendsAsMuchAsArrives) {
  const TableRanks ranks{.num_ranks = 6, .ranks_per_node = 2};
  auto costs =
      costs_at(table(), {.split = TableSplit::kRows, .cuts = {0, 1, 1, 5, 6, 12, 12}}, ranks);
  add_headers(1, ranks, costs);
  RankCost sum;
  for (const RankCost& cost : costs) sum += cost;
  EXPECT_NEAR(sum.sent_near, sum.received_near, 1e-9);
  EXPECT_NEAR(sum.sent_far, sum.received_far, 1e-9);
  EXPECT_NEAR(sum.sent(), 5 * 6 * (36 + 32) + 6 * 5 * 16, 1e-9);
}

TEST(TableCost, TakesTheRatesOfACluster) {
  const Cluster cluster = make_cluster({.cluster = {.device = "cpu"}});
  const TableRates rates = rates_of(cluster);
  EXPECT_EQ(rates.near_bytes, cluster.device.link_rate * cluster.device.link_share);
  const RankCost cost{.sent_near = 10, .sent_far = 4, .received_near = 30};
  EXPECT_DOUBLE_EQ(rates.seconds(cost), 30 / rates.near_bytes + 4 / rates.far_bytes);
}

}  // namespace
}  // namespace trireme::plan
