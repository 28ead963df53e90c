#include "trireme/cli/plan/device_rates.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"

namespace trireme::cli {
namespace {

TEST(DeviceRates, FindTheCurveThatMadeThem) {
  for (const double half : {0.0, 12.0, 100.0}) {
    std::vector<ProductRate> rates;
    for (const double n : {32.0, 64.0, 256.0, 1024.0}) {
      rates.push_back({n, 5e10 * std::pow(n / (n + half), 3)});
    }
    const ProductCurve curve = fit_products(rates);
    EXPECT_NEAR(curve.half_size, half, 0.05 * half + 0.5);
    EXPECT_NEAR(curve.flops / 5e10, 1, 0.05);
  }
}

TEST(DeviceRates, ALineIsReadBack) {
  const DeviceRates rates{.single = {1e10, 20},
                          .half_flops = 2e9,
                          .attention_flops = 3e9,
                          .memory_bytes = 4e9,
                          .launch_seconds = 5e-6,
                          .link_bytes = 6e9,
                          .link_seconds = 7e-7,
                          .disk_bytes = 9e8,
                          .resident_bytes = 8e8};
  EXPECT_EQ(line_of(read_device_line(line_of(rates))), line_of(rates));
}

TEST(DeviceRates, EveryRateIsMeasured) {
  harness::run_ranks(2, [](comm::Communicator& group) {
    const DeviceRates rates = measure_device(group, 1e-6);
    for (const double rate :
         {rates.single.flops, rates.half_flops, rates.attention_flops, rates.memory_bytes,
          rates.launch_seconds, rates.link_bytes, rates.link_seconds, rates.resident_bytes}) {
      EXPECT_GT(rate, 0);
      EXPECT_TRUE(std::isfinite(rate));
    }
  });
}

}  // namespace
}  // namespace trireme::cli
