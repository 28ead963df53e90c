#include "trireme/parallel/tensor/branch_rows.h"

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/parallel/tensor/whole_and_part.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// Each row comes from one rank and its gradient goes to one: nothing is rounded.
TEST(PickRows, HaveTheBitsOfAnIndexIntoAllRows) {
  for (const int64_t length : {0, 1, 7}) {
    const at::Tensor x = values({3, length, 4}, 0.3, 1, at::kFloat);
    const at::Tensor rows = length == 0 ? at::empty({0}, at::kLong)
                                        : at::tensor({2 * length, int64_t{0}, length}, at::kLong);
    const at::Tensor weight = values({rows.numel(), 4}, 0.7, 1, at::kFloat);
    const at::Tensor whole = x.clone().requires_grad_();
    const at::Tensor picked = whole.reshape({-1, 4}).index_select(0, rows);
    const at::Tensor expected = torch::autograd::grad({(picked * weight).sum()}, {whole})[0];
    for_each_axis({1, 2, 3, 4, 5}, [&](const TensorAxis& axis) {
      const at::Tensor own = held_rows(x, axis).requires_grad_();
      const at::Tensor y = pick_rows(own, rows, 3 * length, axis);
      assert_same_bits(y.detach(), picked.detach(), "rows");
      const auto grad = torch::autograd::grad({(y * weight).sum()}, {own})[0];
      assert_same_bits(grad, held_rows(expected, axis), "gradient");
    });
  }
}

TEST(PickRows, SendTheBytesTheyState) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const int64_t n = 3, D = 8;
      const at::Tensor x = values({sequence ? 2 : 8, D}, 0.5).requires_grad_();
      const at::Tensor y = pick_rows(x, at::tensor({7, 1, 2}, at::kLong), 8, axis);
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, sequence ? 2 * 3 * n * D * 8 / 4 : 0);
      counting.ledger().clear();
      torch::autograd::grad({y.sum()}, {x});
      EXPECT_EQ(counting.ledger().of(group.name()).bytes, 0);
    });
  }
}

}  // namespace
}  // namespace trireme::parallel
