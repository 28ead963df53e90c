#include "trireme/model/linear.h"

#include <gtest/gtest.h>

#include "tests/model/gradients.h"

namespace trireme::model {
namespace {

TEST(Project, EqualsSeveralLinearLayers) {
  const Tensors in = {values({2, 3, 5}, 0.37), values({4, 5}, 0.3), values({7, 5}, 0.5),
                      values({2, 5}, 0.7)};
  const auto joined = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) {
    return at::cat({a, b, c}, -1);
  };
  assert_same_function(
      [&](const Tensors& t) {
        const auto [a, b, c] = project(t[0], t[1], t[2], t[3]);
        return joined(a, b, c);
      },
      [&](const Tensors& t) {
        return joined(at::linear(t[0], t[1]), at::linear(t[0], t[2]), at::linear(t[0], t[3]));
      },
      in, 1e-14);
}

TEST(Project, ThirdWeightMayBeMissing) {
  assert_same_function(
      [](const Tensors& t) {
        const auto [a, b, none] = project(t[0], t[1], t[2]);
        EXPECT_FALSE(none.defined());
        return a * b;
      },
      [](const Tensors& t) { return at::linear(t[0], t[1]) * at::linear(t[0], t[2]); },
      {values({6, 5}, 0.37), values({4, 5}, 0.3), values({4, 5}, 0.5)}, 1e-14);
}

TEST(Project, AnOutputNobodyUsesCostsNoGradient) {
  assert_same_function([](const Tensors& t) { return project(t[0], t[1], t[1]).at(1); },
                       [](const Tensors& t) { return at::linear(t[0], t[1]); },
                       {values({6, 5}, 0.37), values({4, 5}, 0.3)}, 1e-14);
}

TEST(Linear, ForwardAddSumsTheResidual) {
  Linear linear(5, 4, false, at::kDouble);
  linear.weight.data().copy_(values({4, 5}, 0.3));
  assert_same_function([&](const Tensors& t) { return linear.forward_add(t[0], t[1]); },
                       [&](const Tensors& t) { return at::linear(t[0], linear.weight) + t[1]; },
                       {values({2, 3, 5}, 0.37), values({2, 3, 4}, 0.5)}, 1e-14);
}

TEST(Linear, BiasIsAddedWhenAskedFor) {
  Linear linear(2, 3, true, at::kDouble);
  linear.bias.data().fill_(0.5);
  EXPECT_TRUE(linear.forward(values({4, 2}, 0.3)).equal(at::full({4, 3}, 0.5, at::kDouble)));
  EXPECT_FALSE(Linear(2, 3, false, at::kDouble).bias.defined());
}

}  // namespace
}  // namespace trireme::model
