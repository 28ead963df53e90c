#include "trireme/verify/precision.h"

#include <limits>

#include <gtest/gtest.h>

namespace trireme::verify {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(Precision, EqualBitsAreTheSame) { EXPECT_EQ(judge({}, {}), Finding::kSame); }

TEST(Precision, WhatShrinksAsTheRoundoffDoesIsRounding) {
  EXPECT_EQ(judge({6e-8, 6e-8}, {}), Finding::kRounding);
  EXPECT_EQ(judge({1e-6, 1e-6}, {2e-15, 2e-15}), Finding::kRounding);
  // Grown by a million in later steps, in both precisions.
  EXPECT_EQ(judge({0.5, 1}, {1e-9, 2e-9}), Finding::kRounding);
}

// All of a value that is zero but for rounding differs: 1 relative in both.
TEST(Precision, NoiseAroundZeroIsRounding) {
  EXPECT_EQ(judge({1e-9, 1}, {2e-18, 1}), Finding::kRounding);
}

TEST(Precision, WhatStaysIsABug) {
  EXPECT_EQ(judge({0.5, 0.5}, {0.5, 0.5}), Finding::kBug);
  // Below the rounding of fp32, which hides it there.
  EXPECT_EQ(judge({1e-7, 1e-7}, {1e-8, 1e-8}), Finding::kBug);
  EXPECT_EQ(judge({}, {1e-3, 1e-3}), Finding::kBug);
  EXPECT_EQ(judge({kInfinite, kInfinite}, {kInfinite, kInfinite}), Finding::kBug);
  EXPECT_EQ(judge({1e-7, 1e-7}, {kInfinite, kInfinite}), Finding::kBug);
}

TEST(Precision, BetweenTheTwoItIsUndecided) {
  EXPECT_EQ(judge({1e-6, 1e-6}, {1e-11, 1e-11}), Finding::kUndecided);
  EXPECT_EQ(judge({kInfinite, kInfinite}, {1e-15, 1e-15}), Finding::kUndecided);
  EXPECT_EQ(judge({kInfinite, kInfinite}, {}), Finding::kUndecided);
}

TEST(Precision, ABoundIsWhatRoundoffsMake) {
  EXPECT_EQ(judge_by_bound({}, {1e-6, 1e-6}), Finding::kSame);
  EXPECT_EQ(judge_by_bound({8e-6, 8e-6}, {1e-6, 1e-6}), Finding::kRounding);
  EXPECT_EQ(judge_by_bound({9e-6, 9e-6}, {1e-6, 1e-6}), Finding::kUndecided);
  EXPECT_EQ(judge_by_bound({64e-6, 64e-6}, {1e-6, 1e-6}), Finding::kUndecided);
  EXPECT_EQ(judge_by_bound({65e-6, 65e-6}, {1e-6, 1e-6}), Finding::kBug);
  EXPECT_EQ(judge_by_bound({1e-9, 1}, {}), Finding::kBug);
  EXPECT_EQ(judge_by_bound({kInfinite, kInfinite}, {1, 1}), Finding::kBug);
  EXPECT_EQ(judge_by_bound({1, 1}, {kInfinite, kInfinite}), Finding::kUndecided);
}

}  // namespace
}  // namespace trireme::verify
