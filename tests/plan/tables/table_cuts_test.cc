#include "trireme/plan/tables/table_placer.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const TableRates kRates{.near_bytes = 1e9, .far_bytes = 1e8, .memory_bytes = 1e10};

// The first four of 16 rows have three quarters of the uses.
TableLoad hot_at_the_front() {
  std::vector<RowCounts> buckets(16, {.distinct = 1, .sums = 1, .updated = 1});
  for (size_t i = 0; i < 4; ++i) buckets[i] = {.distinct = 9, .sums = 9, .updated = 9};
  return {.name = "t", .rows = 16, .width = 8, .use = {RowUse(16, buckets)}};
}

TEST(TableCuts, GiveEachRankItsShareOfTheWork) {
  const TableLoad load = hot_at_the_front();
  const RowWork work(load, {.num_ranks = 4, .ranks_per_node = 4}, kRates);
  EXPECT_THAT(cuts_by_share(work, 16, std::vector<double>{1, 1, 1, 1}),
              ElementsAre(0, 1, 3, 4, 16));
  EXPECT_THAT(cuts_by_share(work, 16, std::vector<double>{1, 0, 1, 0}),
              ElementsAre(0, 3, 3, 16, 16));
  EXPECT_THAT(cuts_by_share(work, 16, std::vector<double>{0, 0, 0, 2}),
              ElementsAre(0, 0, 0, 0, 16));
}

TEST(TableCuts, GiveAllRowsToSomeRankThoughNobodyUsesThem) {
  const TableLoad load{.name = "t", .rows = 5, .width = 1, .use = {RowUse::even(5, {})}};
  const RowWork work(load, {.num_ranks = 2, .ranks_per_node = 2}, kRates);
  const auto cuts = cuts_by_share(work, 5, std::vector<double>{1, 1});
  EXPECT_EQ(cuts.front(), 0);
  EXPECT_EQ(cuts.back(), 5);
}

TEST(TableCuts, LevelTheRanks) {
  EXPECT_THAT(levelling_shares(std::vector<double>{5, 1, 3}, 5), ElementsAre(0, 3.5, 1.5));
  EXPECT_THAT(levelling_shares(std::vector<double>{1, 1}, 2), ElementsAre(1, 1));
  EXPECT_THAT(levelling_shares(std::vector<double>{1, 1}, 0), ElementsAre(1, 1));
  EXPECT_THAT(levelling_shares(std::vector<double>{9, 1}, 2), ElementsAre(0, 2));
}

TEST(TableCuts, FollowTheFreeMemory) {
  EXPECT_THAT(cuts_by_memory(10, 4, std::vector<double>{40, 40}), ElementsAre(0, 5, 10));
  EXPECT_THAT(cuts_by_memory(10, 4, std::vector<double>{12, 0, 28}), ElementsAre(0, 3, 3, 10));
  EXPECT_THAT(cuts_by_memory(10, 4, std::vector<double>{15, 27}), IsEmpty());  // rows of 12 and 24
  EXPECT_THAT(cuts_by_memory(10, 4, std::vector<double>{-1, 41}), ElementsAre(0, 0, 10));
}

}  // namespace
}  // namespace trireme::plan
