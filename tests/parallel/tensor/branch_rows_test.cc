#include "trireme/parallel/tensor/branch_rows.h"

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/parallel/tensor/whole_and_part.h"

namespace trireme::parallel {
namespace {

using namespace harness;

// A branch of which rank r computes (r + 1) * sin(x): the ranks' sum is p (p + 1) / 2 * sin(x).
TEST(BranchRows, ABranchIsTheSumOfItsParts) {
  for (const int64_t length : {0, 1, 7}) {
    const at::Tensor x = values({3, length, 4}, 0.3), weight = values({3, length, 4}, 0.7);
    for_each_axis({1, 2, 3, 4, 5}, [&](const TensorAxis& axis) {
      const double factor = axis.size() * (axis.size() + 1) / 2.0;
      const at::Tensor whole = x.clone().requires_grad_();
      const at::Tensor expected = whole.sin() * factor;
      const at::Tensor expected_grad =
          torch::autograd::grad({(expected * weight).sum()}, {whole})[0];
      const at::Tensor own = held_rows(x, axis).requires_grad_();
      const at::Tensor rows = open_branch(own, 3 * length, axis);
      const at::Tensor y = close_branch(rows.sin() * (axis.rank() + 1), own.sizes(), axis);
      // A sum of at most five terms.
      assert_close(y.detach(), held_rows(expected.detach(), axis), 1e-15, 1e-15, "y");
      const auto grad = torch::autograd::grad({(y * held_rows(weight, axis)).sum()}, {own})[0];
      assert_close(grad, held_rows(expected_grad, axis), 1e-15, 1e-15, "gradient");
    });
  }
}

TEST(BranchRows, SendTheBytesTheyState) {
  for (const bool sequence : {false, true}) {
    run_ranks(4, [&](comm::Communicator& group) {
      CountingCommunicator counting(group);
      const TensorAxis axis{.group = &counting, .sequence = sequence};
      const int64_t S = 8, D = 4, n = S * D * 8;
      const at::Tensor x = values({sequence ? 2 : 8, D}, 0.5).requires_grad_();
      const auto take_bytes = [&] {
        const int64_t bytes = counting.ledger().of(group.name()).bytes;
        counting.ledger().clear();
        return bytes;
      };
      const at::Tensor rows = open_branch(x, S, axis);
      EXPECT_EQ(take_bytes(), sequence ? n * 3 / 4 : 0);
      const at::Tensor y = close_branch(rows * 2, x.sizes(), axis);
      EXPECT_EQ(take_bytes(), sequence ? n * 3 / 4 : n * 3 / 2);
      torch::autograd::grad({y.sum()}, {x});
      // y's gradient is gathered, and that of x is summed.
      EXPECT_EQ(take_bytes(), n * 3 / 2);
    });
  }
}

}  // namespace
}  // namespace trireme::parallel
