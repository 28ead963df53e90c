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

TEST(KernelTime, AHostMultipliesByOneWeightAfterTheOther) {
  Device device = unit_device();
  const Product joined{1000, 300, 1e7},
      each{.rows = 1000, .columns = 300, .inner = 1e7, .num_weights = 3};
  EXPECT_EQ(product_seconds(device, each, 1e-9), product_seconds(device, joined, 1e-9));
  device.is_asynchronous = false;
  EXPECT_NEAR(product_seconds(device, each, 1e-9) / product_seconds(device, joined, 1e-9),
              (0.75 / 0.5), 1e-9);
}

TEST(KernelTime, FewRowsSlowAProductInBf16) {
  Device device = unit_device();
  device.bf16_half_rows = 1000;
  const Product few{1000, 1e7, 1e7};
  EXPECT_NEAR(product_seconds(device, few, 2) * 0.25e12 / few.flops(), 1, 1e-4);
  EXPECT_LT(product_seconds(device, few, 4), product_seconds(device, few, 2));
}

TEST(KernelTime, AttentionOverShortSequencesIsSlower) {
  Device device = unit_device();
  const AttentionCore core{.queries = 1000, .keys = 500, .heads = 2, .width = 64};
  const double fast = attention_seconds(device, core, 2, true);
  device.attention_half_size = 500;
  EXPECT_DOUBLE_EQ(attention_seconds(device, core, 2, true), 2 * fast);
  device.bf16_attention_share = device.attention_share;  // with its own half size, 0
  EXPECT_DOUBLE_EQ(attention_seconds(device, core, 2, true), fast);
  EXPECT_DOUBLE_EQ(attention_seconds(device, core, 4, true), 2 * fast);
}

}  // namespace
}  // namespace trireme::plan
