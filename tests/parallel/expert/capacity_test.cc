#include "trireme/parallel/expert/routing.h"

#include <algorithm>
#include <map>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/gradients.h"

namespace trireme::parallel {
namespace {

using namespace harness;

TEST(ExpertCapacity, IsTheEvenShareTimesTheFactorRoundedUp) {
  EXPECT_EQ(expert_capacity(1, 16, 2, 8), 4);
  EXPECT_EQ(expert_capacity(1.25, 16, 2, 8), 5);
  EXPECT_EQ(expert_capacity(1, 17, 2, 8), 5);
  EXPECT_EQ(expert_capacity(0.01, 16, 2, 8), 1);
}

// Each expert by itself: sort its tokens, keep the first.
at::Tensor by_definition(const at::Tensor& experts, const at::Tensor& weights, int64_t E,
                         int64_t capacity, DropBy by) {
  at::Tensor kept = experts.clone();
  for (int64_t b = 0; b < experts.size(0); ++b) {
    for (int64_t e = 0; e < E; ++e) {
      struct Token {
        double weight;
        int64_t t, j;
      };
      std::vector<Token> tokens;
      for (int64_t t = 0; t < experts.size(1); ++t) {
        for (int64_t j = 0; j < experts.size(2); ++j) {
          if (experts[b][t][j].item<int64_t>() == e) {
            tokens.push_back({weights[b][t][j].item<double>(), t, j});
          }
        }
      }
      if (by == DropBy::kProbability) {
        std::sort(tokens.begin(), tokens.end(), [](const Token& x, const Token& y) {
          return x.weight != y.weight ? x.weight > y.weight : x.t < y.t;
        });
      }
      for (size_t i = static_cast<size_t>(capacity); i < tokens.size(); ++i) {
        kept[b][tokens[i].t][tokens[i].j] = -1;
      }
    }
  }
  return kept;
}

TEST(DropOverCapacity, KeepsTheFirstOrTheLikeliestOfEachExpert) {
  Draw draw(7);
  for (int round = 0; round < 60; ++round) {
    const int64_t B = 1 + draw.below<int64_t>(2), T = draw.below<int64_t>(9);
    const int64_t E = 2 + draw.below<int64_t>(4), k = 1 + draw.below<int64_t>(2);
    at::Tensor experts = at::empty({B, T, k}, at::kLong);
    at::Tensor weights = at::empty({B, T, k}, at::kFloat);
    for (int64_t i = 0; i < B * T; ++i) {
      const int64_t first = draw.below(E);
      for (int64_t j = 0; j < k; ++j) {
        experts.view({-1, k})[i][j] = (first + j) % E;
        weights.view({-1, k})[i][j] = 0.25 * static_cast<double>(draw.below(4));  // ties
      }
    }
    const int64_t capacity = 1 + draw.below<int64_t>(4);
    for (const DropBy by : {DropBy::kPosition, DropBy::kProbability}) {
      assert_same_bits(drop_over_capacity(experts, weights, E, capacity, by),
                       by_definition(experts, weights, E, capacity, by), "kept");
    }
  }
}

TEST(DropOverCapacity, LeavesItsInputAlone) {
  const at::Tensor experts = at::zeros({1, 4, 1}, at::kLong);
  const at::Tensor kept = drop_over_capacity(experts, {}, 2, 1, DropBy::kPosition);
  EXPECT_TRUE(experts.eq(0).all().item<bool>());
  EXPECT_EQ(kept.lt(0).sum().item<int64_t>(), 3);
}

}  // namespace
}  // namespace trireme::parallel
