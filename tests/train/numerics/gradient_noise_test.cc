#include "trireme/train/numerics/gradient_noise.h"

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(GradientNoise, NormsOfTheirExpectedSizeGiveTheNumbersBack) {
  constexpr double kSquaredGradient = 3.0, kTrace = 120.0;
  const auto measure = [](double batch) {
    return GradientMeasure{batch, kSquaredGradient + kTrace / batch};
  };
  GradientNoise noise(0.9);
  EXPECT_EQ(noise.batch(), std::nullopt);
  for (int step = 0; step < 3; ++step) {
    noise.add(measure(4 + step), measure(64));
    // A few operations on numbers up to 200.
    EXPECT_NEAR(noise.squared_gradient(), kSquaredGradient, 1e-13);
    EXPECT_NEAR(noise.trace(), kTrace, 1e-11);
    EXPECT_NEAR(*noise.batch(), 40.0, 1e-11);
  }
}

// Mean gradients over `batch` examples: `gradient` plus normal noise of variance 1 / batch in each
// of its elements, so tr(Sigma) is their number.
TEST(GradientNoise, FindsTheNoiseOfSyntheticGradients) {
  constexpr int kElements = 200, kSmall = 2, kRanks = 8, kSteps = 400;
  std::mt19937_64 generator(1);
  std::normal_distribution<double> normal;
  const std::vector<double> gradient(kElements, 0.5);
  GradientNoise noise(0.999);
  for (int step = 0; step < kSteps; ++step) {
    GradientMeasure small{kSmall, 0}, large{kSmall * kRanks, 0};
    std::vector<double> mean(kElements, 0.0);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int i = 0; i < kElements; ++i) {
        const double value = gradient[i] + normal(generator) / std::sqrt(kSmall);
        small.squared_norm += value * value / kRanks;
        mean[i] += value / kRanks;
      }
    }
    for (double value : mean) large.squared_norm += value * value;
    noise.add(small, large);
  }
  // |G|^2 = 200 * 0.5^2 = 50, tr(Sigma) = 200. A step's estimate is spread by about 4 |G| / sqrt(B)
  // = 7 (gradient) and 200 sqrt(2 / (200 * 7)) = 8 (trace); 400 steps bring that to 0.35 and 0.4;
  // bounds of five times that.
  EXPECT_NEAR(noise.squared_gradient(), 50, 1.8);
  EXPECT_NEAR(noise.trace(), 200, 2.0);
  EXPECT_NEAR(*noise.batch(), 4.0, 4.0 * (1.8 / 50 + 2.0 / 200));
}

TEST(GradientNoise, NoBatchIsSuggestedWhileAnEstimateIsNegative) {
  GradientNoise noise;
  noise.add({.batch = 1, .squared_norm = 10}, {.batch = 4, .squared_norm = 1});
  EXPECT_LT(noise.squared_gradient(), 0);
  EXPECT_EQ(noise.batch(), std::nullopt);
}

TEST(GradientNoise, TheSmallBatchMustBeSmaller) {
  GradientNoise noise;
  EXPECT_THROW(noise.add({.batch = 4, .squared_norm = 1}, {.batch = 4, .squared_norm = 1}),
               InternalError);
  EXPECT_THROW(GradientNoise(1.0), InternalError);
}

}  // namespace
}  // namespace trireme::train
