#include "trireme/train/optimizer.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::train {
namespace {

const OptimizerConfig kConfig{.weight_decay = 0.1, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8};

at::Tensor gradient_at(int step, const at::Tensor& parameter) {
  const at::Tensor index = at::arange(parameter.numel(), at::kDouble).view(parameter.sizes());
  return (index * 1.3 + step).cos().to(parameter.scalar_type());
}

NamedTensors make_parameters(at::ScalarType dtype) {
  const auto values = [&](at::IntArrayRef shape) {
    return (at::arange(at::zeros(shape).numel(), at::kDouble) * 0.9)
        .sin()
        .view(shape)
        .to(dtype)
        .requires_grad_();
  };
  return {{"matrix", values({3, 4})}, {"norm", values({5})}};
}

void run(AdamW& optimizer, const NamedTensors& parameters, int first, int last) {
  for (int step = first; step <= last; ++step) {
    for (const auto& [name, parameter] : parameters)
      parameter.mutable_grad() = gradient_at(step, parameter);
    optimizer.step(1e-2 / step);
  }
}

// The update by its formula, one tensor at a time.
at::Tensor reference(const at::Tensor& start, double weight_decay, int steps) {
  at::Tensor weight = start.detach().clone();
  at::Tensor m = at::zeros_like(weight);
  at::Tensor v = at::zeros_like(weight);
  for (int step = 1; step <= steps; ++step) {
    const double rate = 1e-2 / step;
    const at::Tensor g = gradient_at(step, weight);
    m = 0.9 * m + 0.1 * g;
    v = 0.95 * v + 0.05 * g * g;
    const at::Tensor m_hat = m / (1 - std::pow(0.9, step));
    const at::Tensor v_hat = v / (1 - std::pow(0.95, step));
    weight = weight * (1 - rate * weight_decay) - rate * m_hat / (v_hat.sqrt() + 1e-8);
  }
  return weight;
}

TEST(AdamW, FollowsTheFormulaAndDecaysMatricesAlone) {
  const NamedTensors start = make_parameters(at::kDouble);
  const NamedTensors parameters = make_parameters(at::kDouble);
  AdamW optimizer(parameters, kConfig);
  run(optimizer, parameters, 1, 10);
  // Ten steps of a few operations each in another order.
  harness::assert_close(parameters[0].second, reference(start[0].second, 0.1, 10), 1e-13, 0,
                        "matrix");
  harness::assert_close(parameters[1].second, reference(start[1].second, 0.0, 10), 1e-13, 0,
                        "norm");
  EXPECT_EQ(optimizer.num_steps(), 10);
}

TEST(AdamW, ContinuesFromItsStateWithTheSameBits) {
  const NamedTensors straight = make_parameters(at::kFloat);
  AdamW whole(straight, kConfig);
  run(whole, straight, 1, 8);

  const NamedTensors parameters = make_parameters(at::kFloat);
  AdamW first(parameters, kConfig);
  run(first, parameters, 1, 5);
  AdamW second(parameters, kConfig);
  const NamedTensors from = first.state();
  const NamedTensors to = second.state();
  ASSERT_EQ(from.size(), 4u);
  for (size_t i = 0; i < from.size(); ++i) {
    ASSERT_EQ(from[i].first, to[i].first);
    to[i].second.copy_(from[i].second);
  }
  second.set_num_steps(first.num_steps());
  run(second, parameters, 6, 8);
  for (size_t i = 0; i < parameters.size(); ++i) {
    harness::assert_same_bits(parameters[i].second, straight[i].second, parameters[i].first);
  }
}

TEST(AdamW, AParameterWithoutGradientStays) {
  const NamedTensors parameters = make_parameters(at::kFloat);
  const at::Tensor before = parameters[1].second.detach().clone();
  AdamW optimizer(parameters, kConfig);
  parameters[0].second.mutable_grad() = gradient_at(1, parameters[0].second);
  optimizer.step(0.1);
  harness::assert_same_bits(parameters[1].second, before, "norm");
}

}  // namespace
}  // namespace trireme::train
