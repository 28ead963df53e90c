#include "trireme/tasks/recommend/metrics/click_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include <ATen/ATen.h>

namespace trireme::tasks {
namespace {

std::vector<double> numbers(const at::Tensor& state) {
  const double* const begin = state.const_data_ptr<double>();
  return {begin, begin + state.numel()};
}

TEST(NormalisedEntropy, IsOneForTheShareOfPositives) {
  const at::Tensor labels = at::tensor({1.0F, 0.0F, 0.0F, 0.0F});
  const at::Tensor logits = at::full({4}, std::log(1.0 / 3), at::kDouble);
  EXPECT_NEAR(normalised_entropy(numbers(normalised_entropy_state(logits, labels))), 1, 1e-12);
}

TEST(NormalisedEntropy, IsTheRatioOfTheTwoEntropies) {
  const std::vector<double> logits = {2.5, -0.5, 30, -800, 0};
  const std::vector<double> labels = {1, 0, 0, 0, 1};
  double loss = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double z = labels[i] == 1 ? -logits[i] : logits[i];  // log(1 + exp(z))
    loss += z > 30 ? z : std::log1p(std::exp(z));
  }
  const double entropy = -(0.4 * std::log(0.4) + 0.6 * std::log(0.6));
  const at::Tensor state =
      normalised_entropy_state(at::tensor(logits, at::kDouble), at::tensor(labels, at::kDouble));
  EXPECT_EQ(state.numel(), kNormalisedEntropySize);
  EXPECT_NEAR(normalised_entropy(numbers(state)), loss / 5 / entropy, 1e-12);
}

TEST(NormalisedEntropy, AddsUpOverParts) {
  const at::Tensor logits = at::arange(10, at::kFloat).sub(4);
  const at::Tensor labels = at::arange(10).remainder(2).to(at::kLong);
  const auto state = [&](int64_t begin, int64_t end) {
    return normalised_entropy_state(logits.slice(0, begin, end), labels.slice(0, begin, end));
  };
  const at::Tensor parts = state(0, 3) + state(3, 3) + state(3, 10);
  EXPECT_NEAR(normalised_entropy(numbers(parts)), normalised_entropy(numbers(state(0, 10))), 1e-14);
}

TEST(NormalisedEntropy, IsUndefinedWithoutBothClasses) {
  for (const std::vector<float>& labels : {std::vector<float>{}, {1, 1}, {0, 0, 0}}) {
    const at::Tensor all = at::tensor(labels, at::kFloat);
    const at::Tensor state = normalised_entropy_state(at::zeros_like(all), all);
    EXPECT_TRUE(std::isnan(normalised_entropy(numbers(state))));
  }
}

}  // namespace
}  // namespace trireme::tasks
