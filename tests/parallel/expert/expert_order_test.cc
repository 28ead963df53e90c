#include "trireme/parallel/expert/expert_order.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

TEST(OrderByExpert, RowsAreByExpertAndThenByAssignment) {
  harness::Draw draw(1);
  for (int round = 0; round < 100; ++round) {
    const int64_t S = draw.below<int64_t>(12), k = 1 + draw.below<int64_t>(3),
                  E = 1 + draw.below<int64_t>(6);
    const at::Tensor experts = at::empty({S, k}, at::kLong);
    std::vector<std::pair<int64_t, int64_t>> expected;  // (expert, assignment)
    for (int64_t i = 0; i < S * k; ++i) {
      const int64_t expert = draw.below(E + 1) - 1;
      experts.view({-1})[i] = expert;
      if (expert >= 0) expected.emplace_back(expert, i);
    }
    std::ranges::sort(expected);
    const ExpertOrder order = order_by_expert(experts, E);
    ASSERT_EQ(order.num_rows(), std::ssize(expected));
    std::vector<int64_t> counts(static_cast<size_t>(E));
    for (int64_t row = 0; row < order.num_rows(); ++row) {
      const auto [expert, assignment] = expected[static_cast<size_t>(row)];
      ++counts[static_cast<size_t>(expert)];
      ASSERT_EQ(order.tokens_R[row].item<int64_t>(), assignment / k);
      ASSERT_EQ(order.rows_SK.view({-1})[assignment].item<int64_t>(), row);
    }
    ASSERT_EQ(order.counts, counts);
    for (int64_t i = 0; i < S * k; ++i) {
      if (experts.view({-1})[i].item<int64_t>() < 0)
        ASSERT_EQ(order.rows_SK.view({-1})[i].item<int64_t>(), -1);
    }
  }
}

TEST(OrderByExpert, RefusesExpertsThatAreNotThere) {
  EXPECT_THROW(order_by_expert(at::full({1, 1}, 3, at::kLong), 3), InternalError);
  EXPECT_THROW(order_by_expert(at::full({1, 1}, -2, at::kLong), 3), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
