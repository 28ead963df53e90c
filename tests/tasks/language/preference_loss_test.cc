#include "trireme/tasks/language/preference_loss.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/harness/tensors.h"

namespace trireme::tasks {
namespace {

const at::Tensor kLosses =
    at::tensor({31.0, 30.0, 12.0, 19.0, 44.0, 44.5}, at::kDouble).view({3, 2});
const at::Tensor kReference =
    at::tensor({-30.0, -33.0, -15.0, -11.0, -44.0, -44.5}, at::kDouble).view({3, 2});

TEST(PreferenceLoss, IsThePapersFormulaWithItsSlopes) {
  for (const double smoothing : {0.0, 0.2}) {
    const at::Tensor losses = kLosses.clone().requires_grad_();
    const at::Tensor ratio = -losses - kReference;
    const at::Tensor margin = 0.5 * (ratio.select(1, 0) - ratio.select(1, 1));
    const at::Tensor expected =
        -((1 - smoothing) * at::log_sigmoid(margin) + smoothing * at::log_sigmoid(-margin)).sum();
    const PreferenceLoss found =
        preference_loss(kLosses, kReference, {.beta = 0.5, .label_smoothing = smoothing});
    harness::assert_close(found.sum, expected.detach(), 1e-15, 1e-15, "loss");
    harness::assert_close(found.slopes_P2, torch::autograd::grad({expected}, {losses})[0], 1e-14,
                          1e-15, "slopes");
  }
}

TEST(PreferenceLoss, TheInitialModelHasTheLossOfACoin) {
  const PreferenceLoss found = preference_loss(kLosses, -kLosses, {});
  EXPECT_DOUBLE_EQ(found.sum.item<double>(), 3 * std::log(2));
}

TEST(PreferenceLoss, ReportsRewardsAndTheShareOfPairsThatAreRight) {
  const PreferenceLoss found = preference_loss(kLosses, kReference, {.beta = 0.5});
  // Rewards: chosen -0.5, 1.5, 0; rejected 1.5, -4, 0. A tie is not right.
  harness::assert_close(found.metrics, at::tensor({1.0, 3.0, -2.5, 3.0, 3.5, 3.0, 1.0, 3.0}), 1e-15,
                        1e-15, "metrics");
  EXPECT_EQ(preference_metrics().size() * 2, 8U);
}

TEST(PreferenceLoss, FarMarginsNeitherOverflowNorLoseTheirSlope) {
  const at::Tensor losses = at::tensor({5000.0, 0.0, 0.0, 500.0}, at::kDouble).view({2, 2});
  const PreferenceLoss found = preference_loss(losses, at::zeros_like(losses), {.beta = 1});
  EXPECT_DOUBLE_EQ(found.sum.item<double>(), 5000);
  EXPECT_DOUBLE_EQ(found.slopes_P2[0][0].item<double>(), 1);
  EXPECT_DOUBLE_EQ(found.slopes_P2[1][0].item<double>(), std::exp(-500.0));
}

TEST(PreferenceLoss, NoPairsAreZero) {
  const at::Tensor none = at::empty({0, 2}, at::kDouble);
  const PreferenceLoss found = preference_loss(none, none, {});
  EXPECT_EQ(found.sum.item<double>(), 0);
  EXPECT_EQ(found.slopes_P2.numel(), 0);
  EXPECT_EQ(found.metrics.abs().sum().item<double>(), 0);
}

}  // namespace
}  // namespace trireme::tasks
