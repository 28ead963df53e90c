#include "trireme/plan/cost/workload.h"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

constexpr NumberSizes kMixed = {
    .weight = 2, .gradient = 2, .wide = 4, .states = 8, .has_masters = true};

// Source: Rajbhandari et al. 2020, arXiv:1910.02054, table 1: GB (1e9) per device
struct ZeroMemory {
  double parameters;  // 1e9
  int64_t ranks;
  double stage_1;
  double stage_2;
  double stage_3;
};
constexpr ZeroMemory kTable[] = {
    {7.5, 1, 120, 120, 120},       {128, 1, 2048, 2048, 2048}, {1000, 1, 16000, 16000, 16000},
    {7.5, 4, 52.5, 41.3, 30},      {128, 4, 896, 704, 512},    {1000, 4, 7000, 5500, 4000},
    {7.5, 16, 35.6, 21.6, 7.5},    {128, 16, 608, 368, 128},   {1000, 16, 4750, 2875, 1000},
    {7.5, 64, 31.4, 16.6, 1.88},   {128, 64, 536, 284, 32},    {1000, 64, 4187, 2218, 250},
    {7.5, 256, 30.4, 15.4, 0.47},  {128, 256, 518, 263, 8},    {1000, 256, 4046, 2054, 62.5},
    {7.5, 1024, 30.1, 15.1, 0.12}, {128, 1024, 513, 257, 2},   {1000, 1024, 4011, 2013, 15.6},
};

TEST(StateBytes, AreThe54FiguresOfZero) {
  for (const ZeroMemory& row : kTable) {
    const double printed[] = {row.stage_1, row.stage_2, row.stage_3};
    for (int stage = 1; stage <= 3; ++stage) {
      const double bytes = row.parameters * state_bytes_per_parameter(kMixed, stage, row.ranks);
      const double expected = printed[stage - 1];
      // The table is cut or rounded to its last digit, of which the smallest has two decimals.
      const double digit = expected >= 100 ? 1 : expected >= 2 ? 0.1 : 0.01;
      EXPECT_NEAR(bytes, expected, digit) << row.parameters << " over " << row.ranks;
    }
  }
}

TEST(StateBytes, WithoutZeroDependOnNoRank) {
  EXPECT_EQ(state_bytes_per_parameter(kMixed, 0, 1), 16);
  EXPECT_EQ(state_bytes_per_parameter(kMixed, 0, 64), 16);
}

NumberSizes holding(bool rank_first, bool in_tree, int64_t num_microbatches) {
  NumberSizes sizes = kMixed;
  hold_gradients(sizes, rank_first, in_tree, num_microbatches);
  return sizes;
}

TEST(StateBytes, MicrobatchFirstWholeGradientsStayUntilTheLast) {
  EXPECT_EQ(state_bytes_per_parameter(holding(false, false, 8), 1, 4), 2 + 2 + 12 / 4.0);
  // The rank's part of the step's gradient lies beside them.
  EXPECT_EQ(state_bytes_per_parameter(holding(false, false, 8), 2, 4), 2 + 2 + 14 / 4.0);
  EXPECT_EQ(state_bytes_per_parameter(holding(false, false, 1), 2, 4), 2 + 14 / 4.0);
  // Three sums of the tree of 8 at a time, and the part.
  EXPECT_EQ(state_bytes_per_parameter(holding(false, true, 8), 2, 4), 2 + 3 * 2 + 14 / 4.0);
  EXPECT_EQ(state_bytes_per_parameter(holding(false, true, 8), 1, 4), 2 + 3 * 2 + 14 / 4.0);
  EXPECT_EQ(state_bytes_per_parameter(holding(false, true, 8), 0, 4), 2 + 3 * 2 + 14);
  EXPECT_EQ(state_bytes_per_parameter(holding(false, true, 1), 2, 4), 2 + 14 / 4.0);
}

TEST(StateBytes, RankFirstEachRankAddsItsPartInFp32) {
  for (const int64_t microbatches : {2, 8, 1000}) {
    EXPECT_EQ(state_bytes_per_parameter(holding(true, false, microbatches), 2, 4), 2 + 16 / 4.0);
    EXPECT_EQ(state_bytes_per_parameter(holding(true, false, microbatches), 3, 4), 18 / 4.0);
  }
  EXPECT_EQ(state_bytes_per_parameter(holding(true, false, 1), 3, 4), 16 / 4.0);
  // The tree keeps the gradient's dtype: the part and three sums of it.
  EXPECT_EQ(state_bytes_per_parameter(holding(true, true, 8), 3, 4), (16 + 3 * 2) / 4.0);
}

// Weights are whole; what is kept of a trained one is not there for the others.
TEST(StateBytes, FrozenParametersHaveWeightsAlone) {
  for (const double share : {1.0, 0.25, 0.0}) {
    EXPECT_EQ(state_bytes_per_parameter(kMixed.with_share(share), 0, 1), 2 + 14 * share);
    EXPECT_EQ(state_bytes_per_parameter(kMixed.with_share(share), 1, 4),
              2 + (2 + 12 / 4.0) * share);
    NumberSizes rank_first = kMixed.with_share(share);
    hold_gradients(rank_first, /*rank_first=*/true, /*in_tree=*/false, 8);
    EXPECT_EQ(state_bytes_per_parameter(rank_first, 3, 4), (2 + 16 * share) / 4.0);
  }
}

TEST(StateBytes, ALearnersCommonWeightsAreDividedAsStates) {
  NumberSizes sizes = kMixed;
  sizes.outer = 8;
  for (const int64_t zero : {0, 1, 2, 3}) {
    EXPECT_EQ(
        state_bytes_per_parameter(sizes, zero, 4) - state_bytes_per_parameter(kMixed, zero, 4),
        zero == 0 ? 8 : 2);
  }
  EXPECT_EQ(state_bytes_per_parameter(sizes.with_share(0.25), 0, 1),
            state_bytes_per_parameter(kMixed.with_share(0.25), 0, 1) + 2);
}

TEST(StateBytes, StatesOnDiskTakeNoMemory) {
  NumberSizes sizes = kMixed;
  sizes.states_on_disk = true;
  EXPECT_EQ(state_bytes_per_parameter(sizes, 0, 1), 4);
}

}  // namespace
}  // namespace trireme::plan
