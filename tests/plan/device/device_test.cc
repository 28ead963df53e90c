#include "trireme/plan/device/device.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::plan {
namespace {

TEST(Device, EachHasANameRatesAndASource) {
  std::set<std::string_view> names;
  for (const Device& device : built_in_devices()) {
    EXPECT_TRUE(names.insert(device.name).second) << device.name;
    for (const double rate : {device.peak_half, device.peak_single, device.memory_bytes,
                              device.memory_rate, device.link_rate, device.network_rate}) {
      EXPECT_GT(rate, 0) << device.name;
    }
    for (const double share : {device.product_share, device.attention_share, device.memory_share,
                               device.link_share, device.network_share, device.overlap_cost}) {
      EXPECT_GT(share, 0) << device.name;
      EXPECT_LE(share, 1) << device.name;
    }
    EXPECT_FALSE(device.source.empty()) << device.name;
  }
}

TEST(Device, PeakIsThatOfTheNumbers) {
  const Device& device = device_named("a100-80gb");
  EXPECT_EQ(device.peak(2), 312e12);
  EXPECT_EQ(device.peak(4), 19.5e12);
}

TEST(Device, AnUnknownOneIsRefusedWithTheNames) {
  EXPECT_THAT([] { device_named("h10"); },
              testing::ThrowsMessage<ConfigError>(
                  testing::AllOf(testing::HasSubstr("\"h10\""), testing::HasSubstr("h100-sxm"))));
}

}  // namespace
}  // namespace trireme::plan
