#include "trireme/parallel/embedding/disk/row_cache.h"

#include <gtest/gtest.h>

namespace trireme::parallel::inline internal {
namespace {

TEST(FrequencySketch, NeverCountsTooFewBeforeItHalves) {
  FrequencySketch sketch(1000);
  for (int64_t row = 0; row < 300; ++row) {
    for (int64_t use = 0; use < row % 12; ++use) sketch.add(row);
  }
  int num_exact = 0;
  for (int64_t row = 0; row < 300; ++row) {
    EXPECT_GE(sketch.estimate(row), row % 12);
    num_exact += sketch.estimate(row) == row % 12 ? 1 : 0;
  }
  EXPECT_GT(num_exact, 290);  // three hundred rows in four times a thousand counts
}

TEST(FrequencySketch, StopsAtItsLargestCount) {
  FrequencySketch sketch(1000);
  for (int i = 0; i < 100; ++i) sketch.add(3);
  EXPECT_EQ(sketch.estimate(3), FrequencySketch::kMost);
}

TEST(FrequencySketch, ForgetsInTime) {
  FrequencySketch sketch(16);
  for (int i = 0; i < 12; ++i) sketch.add(3);
  const uint8_t before = sketch.estimate(3);
  for (int64_t i = 0; i < 200; ++i) sketch.add(1000 + i);
  EXPECT_LT(sketch.estimate(3), before);
}

}  // namespace
}  // namespace trireme::parallel::inline internal
