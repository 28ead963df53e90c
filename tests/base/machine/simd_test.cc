#include "trireme/base/machine/simd.h"

#include <bit>
#include <cmath>
#include <vector>

#include <c10/util/Half.h>

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

TEST(Fp16, EveryNumberWidensAndComesBack) {
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const auto stored = static_cast<fp16_t>(bits);
    const float wide = widen(stored);
    const float expected = c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits());
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(wide) && std::isnan(widen(narrow<fp16_t>(wide)))) << bits;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(wide), std::bit_cast<uint32_t>(expected)) << bits;
      ASSERT_EQ(narrow<fp16_t>(wide), stored) << bits;
    }
  }
}

// Every number of fp16, the middle to the next one, and the floats beside that.
TEST(Fp16, RoundsToTheNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits());
    const float middle =
        bits == 0x7bff
            ? 65520.0f
            : (low + c10::Half(static_cast<uint16_t>(bits + 1), c10::Half::from_bits())) / 2;
    for (const float x : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, 1e9f)}) {
      for (const float value : {x, -x}) {
        ASSERT_EQ(static_cast<uint16_t>(narrow<fp16_t>(value)), c10::Half(value).x) << value;
      }
    }
  }
  for (const float value : {1e9f, INFINITY, 1e-30f, 1e-42f}) {
    EXPECT_EQ(static_cast<uint16_t>(narrow<fp16_t>(value)), c10::Half(value).x) << value;
  }
}

}  // namespace
}  // namespace trireme::internal
