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

TEST(Device, IsFoundByTheLongestPartOfItsDriversName) {
  EXPECT_EQ(device_of_driver(" \t NVIDIA A100-SXM4-80GB")->name, "a100-80gb");
  EXPECT_EQ(device_of_driver("NVIDIA A100-SXM4-40GB")->name, "a100-40gb");
  EXPECT_EQ(device_of_driver("NVIDIA H100 80GB HBM3")->name, "h100-sxm");
  EXPECT_EQ(device_of_driver("NVIDIA H100 PCIe")->name, "h100-pcie");
  EXPECT_EQ(device_of_driver("NVIDIA L40S")->name, "l40s");
  EXPECT_EQ(device_of_driver("NVIDIA L4")->name, "l4");
  EXPECT_EQ(device_of_driver("a GPU of next year"), nullptr);
  EXPECT_EQ(device_of_driver(""), nullptr);
}

TEST(Device, AnUnknownOneIsRefusedWithTheNames) {
  EXPECT_THAT([] { device_named("h10"); },
              testing::ThrowsMessage<ConfigError>(
                  testing::AllOf(testing::HasSubstr("\"h10\""), testing::HasSubstr("h100-sxm"))));
}

}  // namespace
}  // namespace trireme::plan
