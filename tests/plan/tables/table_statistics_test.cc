#include "trireme/plan/tables/table_statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

StepShape shape_of(int num_ranks, int64_t samples) {
  return {.samples_per_rank = samples,
          .subtrees = std::vector<std::vector<int64_t>>(static_cast<size_t>(num_ranks), {0})};
}

// Rows drawn by Zipf's law, hot ones anywhere.
std::vector<int64_t> draw_ids(int64_t rows, double exponent, size_t count) {
  std::vector<double> weights;
  for (int64_t i = 1; i <= rows; ++i)
    weights.push_back(std::pow(static_cast<double>(i), -exponent));
  std::mt19937_64 engine(3);
  std::discrete_distribution<int64_t> draw(weights.begin(), weights.end());
  std::vector<int64_t> ids;
  for (size_t i = 0; i < count; ++i) ids.push_back(draw(engine) * 7919 % rows);
  return ids;
}

std::vector<int64_t> offsets_of(size_t samples, int64_t each) {
  std::vector<int64_t> offsets;
  for (size_t s = 0; s <= samples; ++s) offsets.push_back(static_cast<int64_t>(s) * each);
  return offsets;
}

TEST(TableStatistics, CountsAStepThatTheSamplesFill) {
  const std::vector<int64_t> ids{0, 1, 1, 1, 0, 2, 3, 3};  // two ranks of two samples, two steps
  const std::vector<int64_t> offsets{0, 1, 2, 3, 4, 5, 6, 7, 8};
  const TableStatistics found = measure_table({5, ids, offsets}, shape_of(2, 2));
  EXPECT_EQ(found.ids_per_sample, 1);
  EXPECT_EQ(found.distinct, 4);
  EXPECT_EQ(found.use.all().distinct, (2 + 1 + 2 + 1) / 4.0);
  EXPECT_EQ(found.use.all().sums, found.use.all().distinct);
  EXPECT_EQ(found.use.all().updated, (2 + 3) / 2.0);
  EXPECT_EQ(found.hot_share, 3 / 8.0);
}

// Rows far apart in a range of 2^32, as those of an open vocabulary.
TEST(TableStatistics, OfAnOpenVocabularyAreThoseOfTheRowsInUse) {
  const std::vector<int64_t> ids = draw_ids(1000, 1.1, 20'000);
  const std::vector<int64_t> offsets = offsets_of(20'000, 1);
  const TableStatistics dense = measure_table({1000, ids, offsets}, shape_of(2, 64));
  std::vector<int64_t> places;
  for (const int64_t id : ids) places.push_back(id * 4'294'967);
  const TableStatistics open =
      measure_table({int64_t{1} << 32, places, offsets, 1000}, shape_of(2, 64));
  EXPECT_EQ(open.rows_in_use, 1000);
  EXPECT_EQ(open.distinct, dense.distinct);
  EXPECT_EQ(open.exponent, dense.exponent);
  EXPECT_EQ(open.hot_share, dense.hot_share);
  EXPECT_EQ(open.use.rows(), int64_t{1} << 32);
  EXPECT_NEAR(open.use.all().distinct, dense.use.all().distinct, 1e-9);
  EXPECT_NEAR(open.use.in(0, int64_t{1} << 31).updated, dense.use.in(0, 500).updated,
              0.05 * dense.use.all().updated);
}

TEST(TableStatistics, ExpectMoreIdsByHeapsLaw) {
  EXPECT_EQ(expected_ids({}, 100), 0);
  const std::vector<int64_t> four{1, 2, 3, 4}, same{5, 5, 5, 5};
  EXPECT_EQ(expected_ids(four, 4), 4);
  EXPECT_DOUBLE_EQ(expected_ids(four, 40), 40) << "all ids are new";
  EXPECT_EQ(expected_ids(same, 40), 1);
  const std::vector<int64_t> ids = draw_ids(100'000, 1.05, 40'000);
  std::vector<int64_t> sorted = ids;
  std::ranges::sort(sorted);
  const auto distinct = static_cast<double>(std::ranges::unique(sorted).begin() - sorted.begin());
  EXPECT_NEAR(expected_ids(std::span(ids).first(5000), 40'000) / distinct, 1, 0.3);
}

TEST(TableStatistics, CountsSumsOfEachSubtree) {
  const std::vector<int64_t> ids{4, 4, 4};
  const std::vector<int64_t> offsets{0, 1, 2, 3};
  StepShape shape = shape_of(1, 3);
  shape.subtrees = {{0, 2}};
  const TableStatistics found = measure_table({5, ids, offsets}, shape);
  EXPECT_EQ(found.use.all().distinct, 1);
  EXPECT_EQ(found.use.all().sums, 2);
  EXPECT_EQ(found.use.subtrees(), 2);
}

TEST(TableStatistics, FindTheExponentOfTheData) {
  const std::vector<int64_t> ids = draw_ids(20000, 1.1, 40000);
  const TableStatistics found =
      measure_table({20000, ids, offsets_of(20000, 2)}, shape_of(2, 1000));
  EXPECT_NEAR(found.exponent, 1.1, 0.03);
  EXPECT_EQ(found.ids_per_sample, 2);
  EXPECT_NEAR(found.hot_share, zipf_share(20000, 1.1, 0.01), 0.02);
}

TEST(TableStatistics, FindTheExponentOfASmallTable) {
  const std::vector<int64_t> ids = draw_ids(20, 1.05, 40000);
  const TableStatistics found = measure_table({20, ids, offsets_of(40000, 1)}, shape_of(2, 1000));
  EXPECT_EQ(found.distinct, 20);
  EXPECT_NEAR(found.exponent, 1.05, 0.03);
}

TEST(TableStatistics, ExtendFewSamplesByTheLaw) {
  const std::vector<int64_t> ids = draw_ids(5000, 1.0, 16000);
  const TableStatistics all = measure_table({5000, ids, offsets_of(16000, 1)}, shape_of(2, 8000));
  const std::span few(ids.data(), 2000);
  const TableStatistics found = measure_table({5000, few, offsets_of(2000, 1)}, shape_of(2, 8000));
  EXPECT_NEAR(found.use.all().distinct, all.use.all().distinct, 0.05 * all.use.all().distinct);
  EXPECT_NEAR(found.use.all().updated, all.use.all().updated, 0.05 * all.use.all().updated);
}

TEST(TableStatistics, OfSamplesWithoutIdsAreZero) {
  const TableStatistics found = measure_table({5, {}, offsets_of(3, 0)}, shape_of(2, 2));
  EXPECT_EQ(found.ids_per_sample, 0);
  EXPECT_EQ(found.hot_share, 0);
  EXPECT_EQ(found.use.all().updated, 0);
}

TEST(TableStatistics, AssumeWhatTheLawExpects) {
  const TableStatistics found = assume_zipf(1000, 1, 3, shape_of(4, 64));
  EXPECT_DOUBLE_EQ(found.use.all().distinct, expected_distinct(1000, 1, 192));
  EXPECT_DOUBLE_EQ(found.use.all().sums, found.use.all().distinct);
  EXPECT_DOUBLE_EQ(found.use.all().updated, expected_distinct(1000, 1, 768));
  EXPECT_EQ(found.hot_share, zipf_share(1000, 1, 0.01));
}

}  // namespace
}  // namespace trireme::plan
