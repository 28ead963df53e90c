#include "trireme/tasks/recommend/layers/mlp.h"

#include <limits>
#include <utility>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::tasks::inline internal {
namespace {

// Sizes about those of its squares and blocks.
TEST(ReluGradients, AreThoseOfLibtorchAndTheirTranspose) {
  for (const int64_t B : {0, 1, 7, 8, 9, 127, 128, 137, 300}) {
    for (const int64_t O : {1, 7, 8, 15, 64, 65, 200}) {
      const at::Tensor grad = at::randn({B, O});
      const at::Tensor y = at::randn({B, O}).clamp_min(0);
      if (B > 2) y[2][O / 2] = std::numeric_limits<float>::quiet_NaN();
      const at::Tensor grad_BO = at::full({B, O}, 5.0F), grad_OB = at::full({O, B}, 5.0F);
      const ReluProblem problem{B,
                                O,
                                grad.const_data_ptr<float>(),
                                y.const_data_ptr<float>(),
                                grad_BO.mutable_data_ptr<float>(),
                                grad_OB.mutable_data_ptr<float>()};
      const int64_t middle = B / 3;
      relu_gradients(problem, 0, middle);
      EXPECT_TRUE(grad_BO.slice(0, middle).eq(5).all().item<bool>());
      EXPECT_TRUE(grad_OB.slice(1, middle).eq(5).all().item<bool>());
      relu_gradients(problem, middle, B);
      const at::Tensor expected = at::threshold_backward(grad, y, 0);
      harness::assert_same_bits(grad_BO, expected, "gradient");
      harness::assert_same_bits(grad_OB, expected.t().contiguous(), "its transpose");
    }
  }
}

}  // namespace
}  // namespace trireme::tasks::inline internal
