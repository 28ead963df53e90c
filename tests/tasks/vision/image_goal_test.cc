#include "trireme/tasks/vision/image_model.h"

#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::tasks {
namespace {

constexpr dataset::ImageShape kShape{3, 2, 2};

VisionConfig config_with(double mixup, double label_smoothing) {
  VisionConfig config;
  config.blend.mixup = mixup;
  config.blend.label_smoothing = label_smoothing;
  return config;
}

train::StageInput batch_of(const at::Tensor& labels_B, bool trains, int64_t step = 3,
                           int64_t first_sample = 8) {
  train::StageInput batch{.tensors = {{"label", labels_B}}};
  if (trains) batch.training = model::TrainingPlace{.step = step, .first_sample = first_sample};
  return batch;
}

at::Tensor images() {
  return at::arange(4 * 12, at::kLong).mul_(37).remainder(256).to(at::kByte).view({4, 3, 2, 2});
}

TEST(ImageGoal, PixelsAreNormalised) {
  const ImageGoal coloured(VisionConfig{}, kShape, 1);
  const at::Tensor labels = at::zeros({4}, at::kLong);
  const at::Tensor x = coloured.prepare(images(), at::kDouble, batch_of(labels, false));
  for (int64_t c = 0; c < 3; ++c) {
    const double mean[] = {0.485, 0.456, 0.406}, deviation[] = {0.229, 0.224, 0.225};
    harness::assert_close(x.select(1, c),
                          (images().select(1, c).to(at::kDouble) / 255 - mean[c]) / deviation[c],
                          1e-15, 1e-15, "channel");
  }
  VisionConfig half;
  half.pixels.normalise = Normalisation::kHalf;
  const ImageGoal grey(half, {1, 2, 2}, 1);
  const at::Tensor one = images().narrow(1, 0, 1);
  harness::assert_close(grey.prepare(one, at::kFloat, batch_of(labels, false)),
                        one.to(at::kFloat) / 127.5 - 1, 1e-6, 1e-6, "half");
}

TEST(ImageGoal, MixupBlendsImagesAndLabelsWithOneShare) {
  const ImageGoal goal(config_with(0.4, 0), kShape, 1), plain(config_with(0, 0), kShape, 1);
  const at::Tensor labels = at::tensor({0, 4, 2, 1}, at::kLong);
  const train::StageInput batch = batch_of(labels, true);
  const double share = goal.mixup_share(batch);
  EXPECT_GT(share, 0);
  EXPECT_LT(share, 1);
  const at::Tensor x = plain.prepare(images(), at::kDouble, batch);
  harness::assert_close(goal.prepare(images(), at::kDouble, batch),
                        share * x + (1 - share) * x.flip(0), 1e-14, 1e-14, "images");
  const at::Tensor logits = at::arange(20, at::kDouble).mul_(0.9).sin_().view({4, 5});
  const at::Tensor log_p = at::log_softmax(logits, 1);
  double expected = 0;
  for (int64_t i = 0; i < 4; ++i) {
    expected -= share * log_p[i][labels[i].item<int64_t>()].item<double>() +
                (1 - share) * log_p[i][labels[3 - i].item<int64_t>()].item<double>();
  }
  EXPECT_NEAR(goal.loss_sum(logits, batch).item<double>(), expected, 1e-13);
}

TEST(ImageGoal, LabelSmoothingSpreadsAShareOverAllClasses) {
  const ImageGoal goal(config_with(0, 0.1), kShape, 1);
  const at::Tensor labels = at::tensor({0, 4}, at::kLong);
  const at::Tensor logits = at::arange(10, at::kDouble).mul_(0.9).sin_().view({2, 5});
  const at::Tensor log_p = at::log_softmax(logits, 1);
  const at::Tensor target = at::one_hot(labels, 5).to(at::kDouble) * 0.9 + 0.1 / 5;
  EXPECT_NEAR(goal.loss_sum(logits, batch_of(labels, true)).item<double>(),
              -(target * log_p).sum().item<double>(), 1e-13);
  EXPECT_NEAR(goal.loss_sum(logits, batch_of(labels, false)).item<double>(),
              at::nll_loss(log_p, labels, {}, at::Reduction::Sum).item<double>(), 1e-13);
}

TEST(ImageGoal, EvaluationBlendsNothing) {
  const ImageGoal goal(config_with(1, 0), kShape, 1);
  EXPECT_EQ(goal.mixup_share(batch_of(at::zeros({4}, at::kLong), false)), 1);
}

// The mean of n draws is within five standard errors of the distribution's, and so is the mean of
// squared deviations, whose own deviation is below the variance because shares are bounded.
TEST(ImageGoal, SharesAreBetaDistributed) {
  constexpr int kDraws = 4000;
  for (const double a : {0.1, 0.4, 1.0}) {
    const ImageGoal goal(config_with(a, 0), kShape, 1);
    double sum = 0, squares = 0;
    for (int n = 0; n < kDraws; ++n) {
      const double share = goal.mixup_share(batch_of({}, true, n / 4, n % 4));
      sum += share;
      squares += (share - 0.5) * (share - 0.5);
    }
    const double variance = 1 / (4 * (2 * a + 1));
    EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(variance / kDraws)) << a;
    EXPECT_NEAR(squares / kDraws, variance, 5 * variance / std::sqrt(kDraws)) << a;
  }
}

TEST(ImageGoal, TheShareIsAFunctionOfSeedAndPlace) {
  const ImageGoal goal(config_with(0.4, 0), kShape, 1), other(config_with(0.4, 0), kShape, 2);
  const double share = goal.mixup_share(batch_of({}, true));
  EXPECT_EQ(goal.mixup_share(batch_of({}, true)), share);
  EXPECT_NE(other.mixup_share(batch_of({}, true)), share);
  EXPECT_NE(goal.mixup_share(batch_of({}, true, 4)), share);
  EXPECT_NE(goal.mixup_share(batch_of({}, true, 3, 12)), share);
}

TEST(ImageGoal, AMicrobatchMayBeEmpty) {
  const ImageGoal goal(config_with(0.4, 0.1), kShape, 1);
  const train::StageInput batch = batch_of(at::zeros({0}, at::kLong), true);
  EXPECT_EQ(goal.prepare(images().narrow(0, 0, 0), at::kFloat, batch).size(0), 0);
  EXPECT_EQ(goal.loss_sum(at::zeros({0, 5}), batch).item<double>(), 0);
  EXPECT_EQ(ImageGoal::metric_states(at::zeros({0, 5}), batch).sum().item<double>(), 0);
}

}  // namespace
}  // namespace trireme::tasks
