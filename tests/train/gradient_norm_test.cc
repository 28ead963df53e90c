#include "trireme/train/gradient_norm.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::train {
namespace {

at::Tensor values(int64_t count, at::ScalarType dtype) {
  return (at::arange(count, at::kDouble) * 0.61).sin().to(dtype);
}

NamedTensors parameters_with(const std::vector<at::Tensor>& gradients) {
  NamedTensors parameters;
  for (const at::Tensor& gradient : gradients) {
    at::Tensor parameter = at::zeros_like(gradient).requires_grad_();
    parameter.mutable_grad() = gradient.clone();
    parameters.emplace_back("p" + std::to_string(parameters.size()), parameter);
  }
  return parameters;
}

TEST(GradientNorm, EqualsTheNormOfEverythingInDouble) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t count : {0, 1, 15, 16, 17, 16384, 16385, 100003}) {
      const at::Tensor tensor = values(count, dtype);
      const double expected = tensor.to(at::kDouble).square().sum().item<double>();
      // Products of floats are exact in double; only the order of the sum differs.
      EXPECT_NEAR(sum_of_squares(tensor), expected, 1e-13 * expected) << count;
    }
  }
  const NamedTensors parameters =
      parameters_with({values(7, at::kFloat), values(40000, at::kFloat)});
  const double expected =
      at::cat({values(7, at::kDouble), values(40000, at::kDouble)}).norm().item<double>();
  EXPECT_NEAR(gradient_norm(parameters), expected, 1e-7 * expected);
}

TEST(GradientNorm, BitsDoNotDependOnThreadsOrStrides) {
  const at::Tensor tensor = values(300007, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = sum_of_squares(tensor);
  at::set_num_threads(3);
  EXPECT_EQ(sum_of_squares(tensor), one);
  at::set_num_threads(threads);
  const at::Tensor square = values(400, at::kFloat).view({20, 20});
  EXPECT_EQ(sum_of_squares(square.t()), sum_of_squares(square.t().contiguous()));
}

TEST(GradientNorm, ClipsToTheLargestNormAndOnlyAboveIt) {
  const NamedTensors parameters =
      parameters_with({values(100, at::kDouble), values(50, at::kDouble)});
  const at::Tensor before = parameters[0].second.grad().clone();
  const double norm = gradient_norm(parameters);
  clip_gradients(parameters, norm, norm * 2);
  clip_gradients(parameters, norm, 0);
  harness::assert_same_bits(parameters[0].second.grad(), before, "unclipped");
  clip_gradients(parameters, norm, norm / 4);
  EXPECT_NEAR(gradient_norm(parameters), norm / 4, 1e-14 * norm);
  harness::assert_close(parameters[0].second.grad(), before / 4, 1e-15, 0, "direction");
}

TEST(GradientNorm, NamesTheFirstGradientThatIsNotFinite) {
  NamedTensors parameters =
      parameters_with({values(5, at::kFloat), values(5, at::kFloat), values(5, at::kFloat)});
  EXPECT_EQ(first_nonfinite_gradient(parameters), "");
  parameters[2].second.mutable_grad()[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_nonfinite_gradient(parameters), "p2");
  parameters[1].second.mutable_grad()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_nonfinite_gradient(parameters), "p1");
  EXPECT_FALSE(std::isfinite(gradient_norm(parameters)));
}

}  // namespace
}  // namespace trireme::train
