#include "trireme/base/machine/simd.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace trireme::internal {
namespace {

TEST(FastExp, IsWithinTwoUlpOverItsRange) {
  for (float x = -87; x < 88; x += 0.00137f) {
    const double exact = std::exp(static_cast<double>(x));
    const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
    ASSERT_NEAR(fast_exp(x), exact, 2 * ulp) << x;
  }
}

TEST(FastExp, StaysFiniteOutsideAndKeepsNan) {
  EXPECT_LT(fast_exp(-1e30f), 2e-38f);
  EXPECT_TRUE(std::isfinite(fast_exp(1e30f)));
  EXPECT_TRUE(std::isnan(fast_exp(std::nanf(""))));
}

TEST(LaneSum, AddsEveryTermOnce) {
  for (int64_t n = 0; n < 200; ++n) {
    const auto term = [](int64_t i) { return static_cast<double>(i + 1); };
    EXPECT_EQ(lane_sum<double>(n, term), static_cast<double>(n * (n + 1)) / 2);
  }
}

TEST(LaneMax, FindsTheMaximumAnywhere) {
  for (int64_t n = 1; n < 100; ++n) {
    for (int64_t at = 0; at < n; ++at) {
      std::vector<float> x(static_cast<size_t>(n), -2.0f);
      x[static_cast<size_t>(at)] = -1.0f;
      ASSERT_EQ(lane_max(n, x.data()), -1.0f);
    }
  }
}

}  // namespace
}  // namespace trireme::internal
