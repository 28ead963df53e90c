#include "trireme/parallel/tensor/split_norm.h"

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/parallel/tensor/whole_and_part.h"

namespace trireme::parallel {
namespace {

using namespace harness;

constexpr double kEpsilon = 1e-2;  // as large as some means of squares
constexpr double kOffset = 0.25;

at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight) {
  return x * (x.square().mean(-1, true) + kEpsilon).rsqrt() * (weight + kOffset);
}

TEST(SplitNorm, IsTheNormOfTheWholeOnEveryRank) {
  for (const int64_t length : {0, 1, 7}) {
    // A norm of few columns and one of more, each rank with another number of them.
    const at::Tensor x = values({2, length, 5}, 0.3), y = values({2, length, 11}, 0.7);
    const at::Tensor w = values({5}, 0.9), v = values({11}, 0.4);
    const at::Tensor x_grad = values({2, length, 5}, 0.2), y_grad = values({2, length, 11}, 0.6);
    std::vector<at::Tensor> whole;
    for (const at::Tensor& one : {x, y, w, v}) whole.push_back(one.clone().requires_grad_());
    const at::Tensor expected_x = plain_norm(whole[0], whole[2]);
    const at::Tensor expected_y = plain_norm(whole[1], whole[3]);
    const auto expected =
        torch::autograd::grad({(expected_x * x_grad).sum() + (expected_y * y_grad).sum()}, whole);
    for_each_axis({1, 2, 3, 4}, [&](const TensorAxis& axis) {
      std::vector<at::Tensor> own;
      for (const at::Tensor& one : {x, y, w, v})
        own.push_back(part_of(one, one.dim() - 1, axis).requires_grad_());
      const auto results =
          split_rms_norm({{own[0], own[2], 5}, {own[1], own[3], 11}}, kEpsilon, kOffset, axis);
      const auto grads = torch::autograd::grad({(results[0] * part_of(x_grad, 2, axis)).sum() +
                                                (results[1] * part_of(y_grad, 2, axis)).sum()},
                                               own);
      // Sums of at most eleven terms in another order, and some ten further roundings of 2^-53, of
      // numbers below ten.
      const double tolerance = 1e-14;
      assert_close(results[0].detach(), part_of(expected_x.detach(), 2, axis), tolerance, 0, "x");
      assert_close(results[1].detach(), part_of(expected_y.detach(), 2, axis), tolerance, 0, "y");
      for (size_t i = 0; i < own.size(); ++i) {
        assert_close(grads[i], part_of(expected[i], own[i].dim() - 1, axis), 2 * tolerance, 0,
                     "gradient");
      }
    });
  }
}

TEST(SplitNorm, ComputesNarrowNumbersInFp32) {
  const at::Tensor x = values({9, 8}, 0.3) * 30, w = values({8}, 0.9);
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor narrow = x.to(dtype), weight = w.to(dtype);
    const at::Tensor expected = plain_norm(narrow.to(at::kFloat), weight.to(at::kFloat)).to(dtype);
    run_ranks(2, [&](comm::Communicator& group) {
      const TensorAxis axis{.group = &group};
      const at::Tensor y = split_rms_norm({{part_of(narrow, 1, axis), part_of(weight, 0, axis), 8}},
                                          kEpsilon, kOffset, axis)[0];
      EXPECT_EQ(y.scalar_type(), dtype);
      // The one rounding to dtype, of another fp32 number.
      const double rounding = dtype == at::kHalf ? 0x1p-11 : 0x1p-8;
      assert_close(y.to(at::kFloat), part_of(expected, 1, axis).to(at::kFloat), 1e-6, 2 * rounding,
                   "y");
    });
  }
}

TEST(SplitNorm, SendsTheBytesItStates) {
  run_ranks(4, [](comm::Communicator& group) {
    CountingCommunicator counting(group);
    const TensorAxis axis{.group = &counting};
    const at::Tensor x = values({6, 2}, 0.5).requires_grad_();
    const at::Tensor w = values({2}, 0.5).requires_grad_();
    const int64_t n = 2 * 6 * 8;  // two norms of six rows
    const auto results = split_rms_norm({{x, w, 8}, {x, w, 8}}, kEpsilon, 0, axis);
    EXPECT_EQ(counting.ledger().of(group.name()).bytes, n * 3 / 2);
    torch::autograd::grad({results[0].sum() + results[1].sum()}, {x, w});
    EXPECT_EQ(counting.ledger().of(group.name()).bytes, 2 * n * 3 / 2);
  });
}

}  // namespace
}  // namespace trireme::parallel
