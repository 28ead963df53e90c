#include "trireme/base/machine/bf16_numbers.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/machine/simd.h"

namespace trireme {
namespace {

TEST(Bf16Numbers, EveryNumberWidensExactlyAndComesBack) {
  std::vector<uint16_t> bits(1 << 16);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  std::vector<float> wide(bits.size());
  widen_numbers(bits.data(), std::ssize(bits), 1, wide.data());
  std::vector<uint16_t> back(bits.size());
  narrow_numbers(wide.data(), std::ssize(wide), 1, back.data());
  for (size_t i = 0; i < bits.size(); ++i) {
    const auto expected = at::BFloat16(bits[i], at::BFloat16::from_bits());
    if (std::isnan(static_cast<float>(expected))) {
      EXPECT_TRUE(std::isnan(wide[i]) && std::isnan(widen(back[i]))) << i;
    } else {
      EXPECT_EQ(wide[i], static_cast<float>(expected)) << i;
      EXPECT_EQ(back[i], bits[i]);
    }
  }
}

TEST(Bf16Numbers, RoundLibtorchsWay) {
  at::manual_seed(1);
  const float least = std::numeric_limits<float>::denorm_min();
  for (const int64_t count : {0, 1, 31, 1000, 100'003}) {
    at::Tensor x = at::randn({count}) * 100;
    // Ties to even, both ways; the largest number becomes infinite.
    const std::vector<float> special = {0x1.01p0F,     0x1.03p0F,
                                        -0x1.01p0F,    least,
                                        0x1.ffffp127F, std::numeric_limits<float>::infinity()};
    for (int64_t i = 0; i < std::min(count, std::ssize(special)); ++i)
      x[i] = special[static_cast<size_t>(i)];
    const at::Tensor y = at::empty({count}, at::kBFloat16);
    narrow_numbers(x.const_data_ptr<float>(), count, 1, stored_out<at::BFloat16>(y));
    EXPECT_TRUE(at::equal(y, x.to(at::kBFloat16))) << count;
    narrow_numbers(x.const_data_ptr<float>(), count, 0.3F, stored_out<at::BFloat16>(y));
    EXPECT_TRUE(at::equal(y, x.mul(at::full({1}, 0.3F)).to(at::kBFloat16))) << count;
    const at::Tensor z = at::empty({count});
    widen_numbers(stored_in<at::BFloat16>(y), count, 0.7F, z.mutable_data_ptr<float>());
    EXPECT_TRUE(at::equal(z, y.to(at::kFloat).mul(at::full({1}, 0.7F)))) << count;
  }
}

}  // namespace
}  // namespace trireme
