#include "trireme/plan/tables/table_statistics.h"

#include <vector>

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

TEST(RowUse, CountsEachRowThatHasABucket) {
  const std::vector<int64_t> ids{4, 0, 4, 2, 4, 0};
  const std::vector<uint8_t> subtrees{0, 0, 0, 1, 1, 1};
  std::vector<RowCounts> buckets(5);
  count_ids({ids, subtrees}, 5, buckets);
  const RankIds of_rank{ids};
  count_updates({&of_rank, 1}, 5, buckets);
  const RowUse use(5, buckets, 2);
  EXPECT_EQ(use.all().distinct, 3);
  EXPECT_EQ(use.all().sums, 5);
  EXPECT_EQ(use.all().updated, 3);
  EXPECT_EQ(use.in(0, 1).sums, 2);
  EXPECT_EQ(use.in(1, 4).distinct, 1);
  EXPECT_EQ(use.in(4, 5).sums, 2);
  EXPECT_EQ(use.in(3, 3).sums, 0);
}

TEST(RowUse, SplitsABucketEvenly) {
  const std::vector<RowCounts> buckets{{.distinct = 4}, {.distinct = 9}};
  const RowUse use(5, buckets);  // rows 0 to 2, and 3 to 4
  EXPECT_EQ(use.in(0, 3).distinct, 4);
  EXPECT_EQ(use.in(3, 5).distinct, 9);
  EXPECT_NEAR(use.in(2, 4).distinct, 4.0 / 3 + 4.5, 1e-12);
  EXPECT_EQ(RowUse::even(8, {.distinct = 4}).in(2, 4).distinct, 1);
}

TEST(RowUse, PutsEachRowOfALargeTableIntoItsBucket) {
  const int64_t rows = 5 * RowUse::kMaxBuckets + 3;
  for (const int64_t row : {int64_t{0}, int64_t{7}, rows / 2, rows - 2, rows - 1}) {
    std::vector<RowCounts> buckets(static_cast<size_t>(RowUse::num_buckets(rows)));
    count_ids({{&row, 1}}, rows, buckets);
    const RowUse use(rows, buckets);
    EXPECT_GT(use.in(row, row + 1).distinct, 0.1) << row;
    EXPECT_EQ(use.all().distinct, 1);
  }
}

TEST(RowUse, CountsARowThatSeveralRanksUpdateOnce) {
  const std::vector<int64_t> a{1, 2, 2}, b{2, 0};
  const std::vector<RankIds> ranks{{a}, {b}};
  std::vector<RowCounts> buckets(4);
  count_updates(ranks, 4, buckets);
  EXPECT_EQ(RowUse(4, buckets).all().updated, 3);
}

TEST(RowUse, Scales) {
  const RowUse use = RowUse::even(4, {.distinct = 2, .sums = 3, .updated = 4}).scaled(2, 0.5);
  EXPECT_EQ(use.all().distinct, 4);
  EXPECT_EQ(use.all().sums, 6);
  EXPECT_EQ(use.all().updated, 2);
}

}  // namespace
}  // namespace trireme::plan
