#include "trireme/parallel/expert/token_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/gradients.h"
#include "trireme/parallel/expert/row_exchange.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// Some dropped, some tokens without a row.
ExpertOrder random_order(Draw& draw, int64_t S, int64_t k, int64_t E) {
  const at::Tensor experts = at::empty({S, k}, at::kLong);
  for (int64_t i = 0; i < S * k; ++i) experts.view({-1})[i] = draw.below(E + 1) - 1;
  if (S > 0) experts.select(0, S - 1).fill_(-1);
  return order_by_expert(experts, E);
}

// The oracle writes sum_of_rows() as a matrix [S, R] that has each weight at its row.
at::Tensor matrix_of(const at::Tensor& weights_SK, const ExpertOrder& order) {
  const int64_t S = weights_SK.size(0), k = weights_SK.size(1);
  at::Tensor matrix = at::zeros({S, order.num_rows() + 1}, weights_SK.options());
  const at::Tensor place = at::where(order.rows_SK.ge(0), order.rows_SK, order.num_rows());
  for (int64_t j = 0; j < k; ++j) {
    matrix = matrix.scatter_add(1, place.narrow(1, j, 1), weights_SK.narrow(1, j, 1));
  }
  return matrix.narrow(1, 0, order.num_rows());
}

// On one rank, where nothing travels.
TEST(TokenRows, MoveAsTheirMatrixDoes) {
  Draw draw(1);
  for (int round = 0; round < 40; ++round) {
    const int64_t S = draw.below<int64_t>(9), k = 1 + draw.below<int64_t>(3),
                  D = 1 + draw.below<int64_t>(40);
    const ExpertOrder order = random_order(draw, S, k, 4);
    const at::Tensor ones = at::ones({S, k}, at::kDouble);
    // Sums of at most 40 products.
    assert_same_function([&](const Tensors& t) { return RowExchange(order, {}).to_experts(t[0]); },
                         [&](const Tensors& t) { return matrix_of(ones, order).t().mm(t[0]); },
                         {values({S, D}, 0.37)}, 1e-14);
    assert_same_function(
        [&](const Tensors& t) { return RowExchange(order, {}).to_tokens(t[0], t[1]); },
        [&](const Tensors& t) { return matrix_of(t[1], order).mm(t[0]); },
        {values({order.num_rows(), D}, 0.37), values({S, k}, 0.9)}, 1e-14);
  }
}

// ((a + b) + c), not any other order: the terms are chosen so that each order rounds differently.
TEST(TokenRows, SumInTheOrderOfAssignments) {
  const ExpertOrder order = order_by_expert(at::tensor({2, 0, 1}, at::kLong).view({1, 3}), 3);
  // The token's rows in the order of its assignments: 1, 2^-24, 2^-24.
  const at::Tensor rows = at::empty({3, 1}, at::kFloat);
  const at::Tensor terms = at::tensor({1.0, 0x1p-24, 0x1p-24}, at::kFloat).view({3, 1});
  rows.index_copy_(0, order.rows_SK.view({-1}), terms);
  const at::Tensor ones = at::ones({1, 3}, at::kFloat);
  ASSERT_EQ(sum_of_rows(rows, ones, order).item<float>(), 1.0F);
  const ExpertOrder other = order_by_expert(at::tensor({0, 1, 2}, at::kLong).view({1, 3}), 3);
  const at::Tensor reversed = terms.flip(0).contiguous();
  ASSERT_EQ(sum_of_rows(reversed, ones, other).item<float>(), 1.0F + 0x1p-23F);
}

// Terms are multiplied and added in fp32 and rounded once.
TEST(TokenRows, HalfPrecisionIsRoundedOnce) {
  Draw draw(2);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const ExpertOrder order = random_order(draw, 7, 3, 4);
    const at::Tensor rows = values({order.num_rows(), 33}, 0.37).to(dtype);
    const at::Tensor weights = values({7, 3}, 0.9, 1, at::kFloat);
    assert_same_bits(sum_of_rows(rows, weights, order),
                     sum_of_rows(rows.to(at::kFloat), weights, order).to(dtype), "sum");
  }
}

}  // namespace
}  // namespace trireme::parallel
