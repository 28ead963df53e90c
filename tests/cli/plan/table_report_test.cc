#include "trireme/cli/plan/table_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trireme/plan/tables/table_statistics.h"

namespace trireme::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

plan::Cluster cluster_of(int64_t nodes, int64_t devices, double memory_gib) {
  return plan::make_cluster(
      {.cluster = {.device = "cpu", .nodes = nodes, .devices_per_node = devices},
       .device = {.memory_gib = memory_gib}});
}

tasks::MeasuredTables tables(int count, int num_ranks) {
  const plan::StepShape shape{
      .samples_per_rank = 512,
      .subtrees = std::vector<std::vector<int64_t>>(static_cast<size_t>(num_ranks), {0})};
  tasks::MeasuredTables all;
  for (int t = 0; t < count; ++t) {
    const int64_t rows = t == 0 ? 1 << 20 : 1000;
    all.statistics.push_back(plan::assume_zipf(rows, 1, 2, shape));
    all.loads.push_back({.name = concat("table", t),
                         .rows = rows,
                         .width = 16,
                         .bytes_per_row = 4,
                         .may_split_columns = false,
                         .use = {all.statistics.back().use}});
  }
  return all;
}

TEST(TableReport, TakesTheMemoryThatTheDeviceLeaves) {
  const plan::Cluster cluster = cluster_of(2, 4, 3);
  const plan::TableSearch search = table_search(cluster, 1 << 20, 0);
  EXPECT_EQ(search.ranks.num_ranks, 8);
  EXPECT_EQ(search.ranks.ranks_per_node, 4);
  EXPECT_EQ(search.memory_bytes, 3.0 * (1 << 30) - (1 << 20));
  EXPECT_EQ(table_search(cluster, 1 << 20, 0.5).memory_bytes, 1 << 29);
}

TEST(TableReport, ShowsTablesRanksAndPlacementsWithoutAPlanner) {
  const PlacedTables placed = place(tables(3, 4), table_search(cluster_of(1, 4, 1), 0, 0));
  const std::string text = show(placed);
  EXPECT_THAT(text, AllOf(HasSubstr("3 with 1.1 M rows"), HasSubstr("table0"),
                          HasSubstr("whole on"), HasSubstr("planned"), HasSubstr("all by rows"),
                          HasSubstr("whole in turn"), Not(HasSubstr("does not fit"))));
  const nlohmann::json json = to_json(placed);
  EXPECT_EQ(json["tables"].size(), 3U);
  EXPECT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["tables"][1]["zipf_exponent"], 1);
  EXPECT_LE(json["planned"]["seconds"], json["all_by_rows"]["seconds"]);
  EXPECT_LE(json["planned"]["seconds"], json["whole_in_turn"]["seconds"]);
  EXPECT_LE(json["least_seconds"], json["planned"]["seconds"]);
  EXPECT_GE(json["planned"]["imbalance"]["look_ups"], 1);
}

TEST(TableReport, SaysWhatDoesNotFitWithoutAPlanner) {
  // The large table takes 68 MiB.
  const PlacedTables placed = place(tables(3, 4), table_search(cluster_of(1, 4, 1), 0, 0.02));
  EXPECT_THAT(show(placed), HasSubstr("does not fit, by "));
  EXPECT_EQ(to_json(placed)["whole_in_turn"]["fits"], false);
  EXPECT_EQ(to_json(placed)["planned"]["fits"], true);
}

TEST(TableReport, ShowsTheLargestOfManyTablesAndTheBusiestOfManyRanks) {
  const PlacedTables placed = place(tables(50, 32), table_search(cluster_of(4, 8, 1), 0, 0));
  EXPECT_THAT(show(placed), AllOf(HasSubstr("and 10 smaller ones"), HasSubstr("and 16 less busy")));
  EXPECT_EQ(to_json(placed)["tables"].size(), 50U);
}

}  // namespace
}  // namespace trireme::cli
