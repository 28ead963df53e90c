#include "trireme/cli/plan/layer_kernels.h"

#include <cmath>
#include <functional>

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

// Of one call.
double time_once(const std::function<void()>& call) {
  call();
  return 2;
}

TEST(LayerKernels, CountWhatTheCostModelCounts) {
  EXPECT_DOUBLE_EQ(Products{.n = 64}.flops(), 2 * std::pow(64, 3));
  EXPECT_DOUBLE_EQ((Products{.n = 64, .rows = 100}.flops()), 2 * 100 * 64 * 64);
  // Half of 4 T^2 W forward, and 2.5 times as much backward.
  EXPECT_DOUBLE_EQ(Attention{256}.flops_per_second(1), 3.5 * 0.5 * 4 * 2048 * 256 * 8 * 64);
  // A gradient is read twice; all else is read and written.
  EXPECT_DOUBLE_EQ(Update{}.bytes_per_second(1) / (4 << 20), 2 * 4 + 2 * (4 + 8));
  EXPECT_DOUBLE_EQ(Update{c10::ScalarType::BFloat16}.bytes_per_second(1) / (4 << 20),
                   2 * 2 + 2 * (2 + 12));
}

TEST(LayerKernels, AreTimed) {
  for (const auto dtype : {c10::ScalarType::Float, c10::ScalarType::BFloat16}) {
    EXPECT_GT((Products{.n = 32, .rows = 64, .dtype = dtype}.seconds(time_once)), 0);
    EXPECT_EQ((Attention{128, dtype}.seconds(time_once)), 2);
    EXPECT_EQ((Head{8, dtype}.seconds(time_once)), 2);
    EXPECT_EQ((Update{dtype}.seconds(time_once)), 2);
  }
  EXPECT_GT(launch_seconds(time_once), 0);
}

}  // namespace
}  // namespace trireme::cli
