#include "trireme/parallel/tensor/tensor_axis.h"

#include <gtest/gtest.h>

#include "tests/harness/counting_communicator.h"
#include "tests/parallel/tensor/whole_and_part.h"

namespace trireme::parallel {
namespace {

using namespace harness;

TEST(ReplicatedWeight, SumsTheGradientsOfAllRanks) {
  const at::Tensor x = values({7, 5}, 0.37), w = values({5}, 0.3);
  const at::Tensor whole = w.clone().requires_grad_();
  const at::Tensor expected = torch::autograd::grad({(x * whole).square().sum()}, {whole})[0];
  for_each_axis({1, 2, 3, 4}, [&](const TensorAxis& axis) {
    const at::Tensor own = w.clone().requires_grad_();
    const at::Tensor y = part_of(x, 0, axis) * replicated_weight(own, axis);
    const at::Tensor grad = torch::autograd::grad({y.square().sum()}, {own})[0];
    // Seven terms in another order: seven roundings of 2^-53.
    assert_close(grad, expected, 1e-15, 1e-15, "gradient");
  });
}

TEST(ReplicatedWeight, LayersThatWorkOnAllRowsNeedNoSum) {
  run_ranks(2, [&](comm::Communicator& group) {
    CountingCommunicator counting(group);
    const at::Tensor w = values({5}, 0.3).requires_grad_();
    EXPECT_TRUE(weight_of_rows(w, {.group = &counting}).is_same(w));
    const at::Tensor split = weight_of_rows(w, {.group = &counting, .sequence = true});
    torch::autograd::grad({split.sum()}, {w});
    EXPECT_EQ(counting.ledger().of(group.name()).bytes, 2 * 5 * 8 / 2);
  });
}

}  // namespace
}  // namespace trireme::parallel
