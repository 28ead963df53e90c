#include "trireme/parallel/learner/wire/block_code.h"

#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/gradients.h"
#include "tests/harness/one_thread.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using enum WireCode;
constexpr std::array kCodes = {kFloat32, kInt8, kInt4, kInt2, kTwoBits, kSign};
constexpr auto kNearest = WireRounding::kNearest;
constexpr auto kStochastic = WireRounding::kStochastic;

at::Tensor numbers(int64_t count, double scale = 3) {
  return harness::values({count}, 0.71, scale, at::kFloat) *
         harness::values({count}, 0.013, 1, at::kFloat);
}

at::Tensor round_trip(WireCode code, const at::Tensor& x, WireRounding rounding = kNearest,
                      RandomKey key = {}) {
  return decode_values(code, encode_values(code, rounding, x, key), x.numel());
}

TEST(BlockCode, TakesTheBytesItSays) {
  const harness::OneThread one_thread;
  const std::vector<int64_t> bytes_of_block = {1024, 260, 132, 68, 72, 36};
  for (size_t i = 0; i < kCodes.size(); ++i) {
    EXPECT_EQ(coded_bytes(kCodes[i], 0), 0);
    EXPECT_EQ(coded_bytes(kCodes[i], kWireBlock), bytes_of_block[i]);
    EXPECT_EQ(coded_bytes(kCodes[i], 3 * kWireBlock), 3 * bytes_of_block[i]);
    for (const int64_t count : {0, 1, 3, 255, 256, 257, 1000, 262145}) {
      const at::Tensor bytes = encode_values(kCodes[i], kNearest, numbers(count), {});
      EXPECT_EQ(bytes.numel(), coded_bytes(kCodes[i], count));
      EXPECT_EQ(decode_values(kCodes[i], bytes, count).numel(), count);
    }
  }
  EXPECT_EQ(coded_bytes(kInt4, 3), 4 + 2);
  EXPECT_EQ(coded_bytes(kTwoBits, 257), 2 * 8 + 65);
}

TEST(BlockCode, NearestIsAtMostHalfAScaleAway) {
  const at::Tensor x = numbers(300001);
  for (const auto& [code, most] : {std::pair{kInt8, 127}, {kInt4, 7}, {kInt2, 1}}) {
    const at::Tensor y = round_trip(code, x);
    const at::Tensor padded = at::constant_pad_nd(x, {0, 31}).view({-1, kWireBlock});
    ASSERT_EQ(padded.numel() % kWireBlock, 0);
    const at::Tensor scales = padded.abs().amax(1, true) / most;
    const at::Tensor bound = (scales * (0.5 + 1e-6)).expand_as(padded).reshape(-1);
    EXPECT_TRUE((x - y).abs().le(bound.narrow(0, 0, x.numel())).all().item<bool>());
    // The largest of each block comes back to a rounding.
    EXPECT_NEAR(y.abs().max().item<float>(), x.abs().max().item<float>(), 1e-6);
  }
}

TEST(BlockCode, RoundsHalfToEven) {
  // A scale of 1.
  const at::Tensor x = at::tensor({7.f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 3.4f, 0.f});
  const at::Tensor y = at::tensor({7.f, 0.f, 2.f, 2.f, 0.f, -2.f, 3.f, 0.f});
  EXPECT_TRUE(round_trip(kInt4, x).equal(y)) << round_trip(kInt4, x);
}

TEST(BlockCode, IsExactForItsOwnNumbers) {
  const at::Tensor whole = at::arange(-127, 128, at::kFloat) * 0.25;
  EXPECT_TRUE(round_trip(kInt8, whole).equal(whole));
  // Neither rounding moves them.
  EXPECT_TRUE(round_trip(kInt8, whole, kStochastic, random_key(3, "a")).equal(whole));
  EXPECT_TRUE(round_trip(kFloat32, numbers(1000)).equal(numbers(1000)));
  // 128 of each magnitude, so that the block's mean divides them.
  const at::Tensor two = at::tensor({1.f, -1.f, 4.f, -4.f}).repeat({64});
  EXPECT_TRUE(round_trip(kTwoBits, two).equal(two));
  const at::Tensor sign = at::tensor({2.f, -2.f}).repeat({64});
  EXPECT_TRUE(round_trip(kSign, sign).equal(sign));
  for (const WireCode code : kCodes) {
    EXPECT_TRUE(round_trip(code, at::zeros({300})).equal(at::zeros({300})));
  }
}

TEST(BlockCode, StochasticRoundingHasTheNumberAsItsMean) {
  constexpr int kTrials = 1000;
  const at::Tensor x = at::tensor({7.f, 0.25f, -0.25f, 3.9f, -6.5f, 1.f});
  at::Tensor sum = at::zeros({6}, at::kDouble);
  for (int i = 0; i < kTrials; ++i) {
    const at::Tensor y =
        round_trip(kInt4, x, kStochastic, random_key(static_cast<uint64_t>(i), "trial"));
    EXPECT_TRUE((x - y).abs().lt(1).all().item<bool>());
    sum += y;
  }
  // A standard deviation of at most 1/2 per trial; six of the mean.
  harness::assert_close(sum / kTrials, x.to(at::kDouble), 0, 6 * 0.5 / std::sqrt(kTrials), "mean");
  EXPECT_EQ((sum / kTrials)[0].item<double>(), 7);
  EXPECT_EQ((sum / kTrials)[5].item<double>(), 1);
}

TEST(BlockCode, StochasticRoundingFollowsItsKeyAndNotTheThreads) {
  const at::Tensor x = numbers(600001);
  const int before = at::get_num_threads();
  const at::Tensor one = encode_values(kInt4, kStochastic, x, random_key(1, "a"));
  at::set_num_threads(1);
  harness::assert_same_bits(encode_values(kInt4, kStochastic, x, random_key(1, "a")), one, "again");
  at::set_num_threads(before);
  EXPECT_FALSE(encode_values(kInt4, kStochastic, x, random_key(2, "a")).equal(one));
  // Pieces have random words of their own.
  const at::Tensor half = at::full({2 * 262144}, 0.5f);
  half[0] = 7, half[262144] = 7;
  const at::Tensor y = round_trip(kInt4, half, kStochastic, random_key(1, "a"));
  EXPECT_FALSE(y.narrow(0, 0, 256).equal(y.narrow(0, 262144, 256)));
}

TEST(BlockCode, TwoMagnitudesLoseLessThanTheNumbers) {
  for (const double power : {0.1, 1.0, 4.0, 30.0}) {  // from even to few large numbers
    const at::Tensor x = numbers(10000, 1).to(at::kDouble).abs().pow(power).to(at::kFloat) *
                         harness::values({10000}, 1.7, 1, at::kFloat).sign();
    const at::Tensor error = (x - round_trip(kTwoBits, x)).to(at::kDouble);
    EXPECT_LT(error.square().sum().item<double>(), x.to(at::kDouble).square().sum().item<double>());
    EXPECT_TRUE(round_trip(kTwoBits, x).mul(x).ge(0).all().item<bool>());
  }
  // Normal numbers: ternary loses more than half of their square, two magnitudes a fifth at most.
  std::vector<double> normal(10240);
  for (size_t i = 0; i < normal.size(); ++i) normal[i] = random_normal(random_key(0, "x"), i);
  const at::Tensor x = at::tensor(normal, at::kFloat);
  const auto lost = [&](WireCode code) {
    return ((x - round_trip(code, x)).square().sum() / x.square().sum()).item<double>();
  };
  EXPECT_LT(lost(kTwoBits), 0.2);
  EXPECT_GT(lost(kInt2), 0.5);
}

TEST(BlockCode, SignsKeepTheNorm) {
  const at::Tensor x = numbers(1000);
  const at::Tensor y = round_trip(kSign, x);
  for (int64_t first = 0; first < 1000; first += kWireBlock) {
    const int64_t count = std::min<int64_t>(kWireBlock, 1000 - first);
    EXPECT_NEAR(y.narrow(0, first, count).norm().item<double>(),
                x.narrow(0, first, count).norm().item<double>(), 1e-5);
  }
  EXPECT_TRUE(y.mul(x).ge(0).all().item<bool>());
}

TEST(BlockCode, TakesTheEndsOfTheRange) {
  constexpr float kLargest = std::numeric_limits<float>::max();
  constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
  for (const WireCode code : kCodes) {
    for (const float size : {kLargest, kSmallest, 100 * kSmallest, 1e-38f}) {
      const at::Tensor x = at::tensor({size, -size, size / 3, 0.f});
      const at::Tensor y = round_trip(code, x);
      EXPECT_TRUE(y.isfinite().all().item<bool>());
      EXPECT_TRUE(y.abs().le(kLargest).all().item<bool>());
    }
    EXPECT_NEAR(round_trip(code, at::full({5}, kLargest))[0].item<float>() / kLargest, 1, 1e-6);
  }
}

TEST(BlockCode, RefusesDamagedScales) {
  for (const WireCode code : kCodes) {
    for (const float scale : {std::nanf(""), std::numeric_limits<float>::infinity(), -1.f, 3e38f}) {
      if ((code == kFloat32 && std::isfinite(scale)) || scale == 3e38f) {
        if (code != kInt8 && code != kInt4) continue;
      }
      const at::Tensor bytes = encode_values(code, kNearest, numbers(300), {});
      bytes.narrow(0, 0, 4).copy_(at::full({1}, scale, at::kFloat).view(at::kByte));
      EXPECT_THROW(decode_values(code, bytes, 300), CommError) << static_cast<int>(code);
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
