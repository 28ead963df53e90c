#include "trireme/base/machine/weight_codes.h"

#include <cmath>
#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr WeightFormat kWithScales[] = {WeightFormat::kInt8, WeightFormat::kNf4};

at::Tensor weights(int64_t rows, int64_t columns) {
  return (at::arange(rows * columns, at::kDouble) * 0.61)
             .sin()
             .view({rows, columns})
             .to(at::kFloat) *
         at::arange(1, rows + 1, at::kFloat).unsqueeze(1);
}

// The numbers of a block are numbered from 0, of largest magnitude `scale`.
TEST(WeightCodes, NumbersAreKeptToHalfTheDistanceOfTheirNeighbours) {
  const at::Tensor whole = weights(5, 192);
  const at::Tensor largest =
      whole.view({5, 3, 64}).abs().amax(2, true).expand({5, 3, 64}).reshape({5, 192});
  // nf4: the widest gap of its quantiles is that from -1 to -0.696.
  for (const auto& [format, gap] :
       {std::pair(WeightFormat::kInt8, 1.0 / 127), {WeightFormat::kNf4, 0.3039}}) {
    const at::Tensor off = (decode(encode(whole, format), at::kFloat) - whole).abs();
    const double bound = gap / 2 + 0x1p-22;
    EXPECT_LE((off / largest).max().item<double>(), bound);
  }
}

TEST(WeightCodes, WhatWasDecodedIsEncodedTheSame) {
  for (const WeightFormat format : kWithScales) {
    const WeightCodes first = encode(weights(7, 128), format);
    const WeightCodes second = encode(decode(first, at::kDouble), format);
    EXPECT_TRUE(at::equal(first.codes, second.codes));
    if (format == WeightFormat::kNf4) {
      EXPECT_TRUE(at::equal(first.scales, second.scales));
    }
  }
}

// 2 (the first number's quantile) * 16 + 12; the scale is 3.
TEST(WeightCodes, Nf4HasTheEarlierNumberInTheUpperBits) {
  at::Tensor block = at::zeros({1, 64});
  block[0][0] = -0.53 * 3;
  block[0][1] = 0.45 * 3;
  block[0][63] = 3;
  const WeightCodes codes = encode(block, WeightFormat::kNf4);
  EXPECT_EQ(codes.scales.item<float>(), 3.0F);
  EXPECT_EQ(codes.codes[0][0].item<int>(), 2 * 16 + 12);
  EXPECT_EQ(codes.codes[0][1].item<int>(), 7 * 16 + 7);
  EXPECT_EQ(codes.codes[0][31].item<int>(), 7 * 16 + 15);
}

TEST(WeightCodes, ABlockOfZerosStaysOne) {
  for (const WeightFormat format : kWithScales) {
    const at::Tensor zeros = at::zeros({2, 64});
    EXPECT_TRUE(at::equal(decode(encode(zeros, format), at::kFloat), zeros));
  }
}

TEST(WeightCodes, EveryDtypeIsTheFp32NumberRounded) {
  for (const WeightFormat format : kWithScales) {
    // More than a task's numbers.
    const WeightCodes codes = encode(weights(257, 192), format);
    const at::Tensor fp32 = decode(codes, at::kFloat);
    for (const at::ScalarType dtype : {at::kDouble, at::kBFloat16, at::kHalf}) {
      EXPECT_TRUE(at::equal(decode(codes, dtype), fp32.to(dtype))) << dtype;
    }
  }
}

TEST(WeightCodes, APartOfTheRowsIsThatOfTheWhole) {
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kNf4}) {
    const at::Tensor whole = weights(9, 128);
    const at::Tensor rows = decode(encode(whole, format).narrow_rows(3, 4), at::kFloat);
    EXPECT_TRUE(at::equal(rows, decode(encode(whole.narrow(0, 3, 4), format), at::kFloat)));
    const WeightCodes columns = encode(whole.narrow(1, 64, 64), format);
    EXPECT_TRUE(at::equal(decode(columns, at::kFloat),
                          decode(encode(whole, format), at::kFloat).narrow(1, 64, 64)));
    EXPECT_EQ(columns.rows(), 9);
    EXPECT_EQ(columns.columns(), 64);
  }
}

TEST(WeightCodes, ADeviceDecodesTheSameNumbers) {
  const at::Device device = harness::fake_device(0);
  for (const WeightFormat format : kWithScales) {
    const WeightCodes codes = encode(weights(3, 128), format);
    const WeightCodes there{format, codes.codes.to(device), codes.scales.to(device)};
    EXPECT_TRUE(at::equal(decode(there, at::kFloat).cpu(), decode(codes, at::kFloat)));
  }
}

TEST(WeightCodes, ANumberThatIsNotFiniteIsRefused) {
  for (const WeightFormat format : kWithScales) {
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      at::Tensor whole = weights(2, 64);
      whole[1][3] = bad;
      EXPECT_THROW(encode(whole, format), ConfigError);
    }
  }
}

}  // namespace
}  // namespace trireme
