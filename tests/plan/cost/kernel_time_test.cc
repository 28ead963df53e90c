#include "trireme/plan/cost/device_seconds.h"

#include <gtest/gtest.h>

namespace trireme::plan {
namespace {

Device unit_device() {
  Device device;
  device.peak_half = device.peak_single = 1e12;
  device.memory_rate = 1e11;
  device.product_share = 0.5;
  device.memory_share = 0.5;
  device.half_size = 100;
  device.attention_share = 0.25;
  return device;
}

TEST(KernelTime, LargeProductsReachTheirShareOfThePeak) {
  const Product large{1e6, 1e6, 1e6};
  EXPECT_NEAR(product_seconds(unit_device(), large, 2), large.flops() / 0.5e12,
              4e-4 * large.flops() / 0.5e12);
}

TEST(KernelTime, ADimensionOfHalfSizeHalvesTheRate) {
  const Product narrow{100, 1e7, 1e7};
  EXPECT_NEAR(product_seconds(unit_device(), narrow, 1e-9) * 0.25e12 / narrow.flops(), 1, 1e-4);
}

TEST(KernelTime, AThinProductIsBoundByMemory) {
  const Product thin{1, 1e5, 1e5};
  Device device = unit_device();
  device.half_size = 0;
  EXPECT_DOUBLE_EQ(product_seconds(device, thin, 2), (1e10 + 2e5) * 2 / 0.5e11);
}

TEST(KernelTime, NothingTakesNoTime) {
  EXPECT_EQ(product_seconds(unit_device(), {0, 5, 5}, 2), 0);
  EXPECT_EQ(elementwise_seconds(unit_device(), 0, 2), 0);
}

TEST(KernelTime, AFusedAttentionSkipsHalfOfTheScores) {
  const AttentionCore core{.queries = 1000, .keys = 1000, .heads = 2, .width = 64};
  EXPECT_DOUBLE_EQ(attention_seconds(unit_device(), core, 2, true),
                   0.5 * 4 * 1000 * 1000 * 2 * 64 / 0.25e12);
  EXPECT_GT(attention_seconds(unit_device(), core, 2, false),
            elementwise_seconds(unit_device(), 6 * core.scores(), 2));
}

}  // namespace
}  // namespace trireme::plan
