#include "trireme/train/numerics/gradient_norm.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::train {
namespace {

TEST(TensorNorm, IsSummedInDouble) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const at::Tensor tensor = at::full({1000, 1000}, 3.0, dtype);
    EXPECT_EQ(l2_norm(tensor).item<double>(), 3000.0);
    EXPECT_EQ(root_mean_square(tensor).item<double>(), 3.0);
  }
  EXPECT_EQ(l2_norm(at::zeros({0})).item<double>(), 0.0);
}

TEST(TensorNorm, TrustRatioIsOneWhereANormIsZero) {
  const auto ratio = [](double a, double b) {
    return trust_ratio(at::scalar_tensor(a, at::kDouble), at::scalar_tensor(b, at::kDouble))
        .item<double>();
  };
  EXPECT_EQ(ratio(3, 4), 0.75);
  EXPECT_EQ(ratio(0, 4), 1);
  EXPECT_EQ(ratio(3, 0), 1);
  EXPECT_EQ(ratio(0, 0), 1);
}

}  // namespace
}  // namespace trireme::train
