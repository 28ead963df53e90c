#include "trireme/parallel/data/compression/sign_code.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"

namespace trireme::parallel {
namespace {

at::Tensor sign_numbers(at::IntArrayRef shape, at::ScalarType dtype) {
  const at::Tensor index = at::arange(at::zeros(shape).numel(), at::kDouble).view(shape);
  return ((index * 1.7 + 0.3).sin() * (index * 0.011).exp()).to(dtype);
}

std::vector<SignPart> whole_part(const SignBlocks& blocks, const at::Tensor& x) {
  return {{blocks.to_rows(x), blocks.counts()}};
}

at::Tensor sent_signs(const at::Tensor& x, at::ScalarType scale) {
  const SignBlocks blocks(x.sizes(), x.device());
  const std::vector<SignPart> parts = whole_part(blocks, x);
  const at::Tensor result = at::empty_like(x);
  blocks.copy_from_rows(decode_signs(encode_signs(parts, scale), parts, scale)[0], result);
  return result;
}

struct BlocksCase {
  std::vector<int64_t> shape;
  int64_t blocks;
  int64_t width;
};

TEST(SignCode, RowsOfWideMatricesHaveBlocksOfTheirOwn) {
  const BlocksCase cases[] = {{{}, 1, 8},         {{0, 3}, 0, 8},     {{3, 0}, 0, 8},
                              {{1}, 1, 8},        {{37, 29}, 37, 32}, {{256, 5}, 5, 256},
                              {{3, 16}, 3, 16},   {{3, 15}, 1, 48},   {{3, 65}, 3, 72},
                              {{2, 256}, 2, 256}, {{2, 257}, 4, 136}, {{4, 300}, 8, 152},
                              {{600}, 3, 200}};
  for (const BlocksCase& each : cases) {
    const SignBlocks blocks(each.shape, at::kCPU);
    EXPECT_EQ(blocks.num_blocks(), each.blocks) << at::IntArrayRef(each.shape);
    EXPECT_EQ(blocks.width(), each.width) << at::IntArrayRef(each.shape);
    EXPECT_EQ(blocks.counts().sum().item<int64_t>(), c10::multiply_integers(each.shape));
    const at::Tensor x = sign_numbers(each.shape, at::kFloat), back = at::empty_like(x);
    blocks.copy_from_rows(blocks.to_rows(x), back);
    harness::assert_same_bits(back, x, "there and back");
  }
}

TEST(SignCode, BytesAreAScalePerBlockAndABitPerNumber) {
  const SignBlocks blocks({4, 300}, at::kCPU);
  const std::vector<SignPart> parts = whole_part(blocks, sign_numbers({4, 300}, at::kFloat));
  EXPECT_EQ(sign_bytes(parts, at::kFloat), 8 * 4 + 8 * 152 / 8);
  EXPECT_EQ(sign_bytes(parts, at::kBFloat16), 8 * 2 + 8 * 152 / 8);
  EXPECT_EQ(encode_signs(parts, at::kFloat).numel(), sign_bytes(parts, at::kFloat));
}

TEST(SignCode, KeepsSignsAndTheNormOfEachBlock) {
  const at::Tensor x = sign_numbers({3, 70}, at::kDouble), y = sent_signs(x, at::kDouble);
  EXPECT_TRUE(at::equal(y.lt(0), x.lt(0)));
  harness::assert_close(y.square().sum(1), x.square().sum(1), 1e-14, 0, "norms");
  EXPECT_TRUE(at::equal(y.abs(), y.abs().select(1, 0).unsqueeze(1).expand({3, 70})));
}

TEST(SignCode, NumbersOfOneMagnitudeArriveAsTheyAre) {
  const at::Tensor x = at::where(sign_numbers({5, 77}, at::kFloat).lt(0), -0.75f, 0.75f);
  harness::assert_same_bits(sent_signs(x, at::kFloat), x, "fp32");
  harness::assert_same_bits(sent_signs(x, at::kBFloat16), x, "scales in bf16");
  harness::assert_same_bits(sent_signs(at::zeros({5, 77}), at::kFloat), at::zeros({5, 77}),
                            "zeros");
}

TEST(SignCode, WhatIsSentIsAMultipleOfTheGradientsDtype) {
  const at::Tensor y = sent_signs(sign_numbers({5, 77}, at::kFloat), at::kBFloat16);
  harness::assert_same_bits(y.to(at::kBFloat16).to(at::kFloat), y, "bf16");
}

TEST(SignCode, SentAndResidualAreTheInput) {
  for (const at::ScalarType scale : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = sign_numbers({9, 131}, at::kFloat), y = sent_signs(x, scale);
    const at::Tensor lost = x - y;  // rounded once
    const at::Tensor off = (y.to(at::kDouble) + lost.to(at::kDouble) - x.to(at::kDouble)).abs();
    EXPECT_TRUE(off.le(lost.to(at::kDouble).abs() * 0x1p-24).all().item<bool>());
  }
}

TEST(SignCode, ANumberThatIsNotFiniteShowsInItsBlockOnly) {
  const at::Tensor x = sign_numbers({3, 70}, at::kFloat);
  x[1][5] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor y = sent_signs(x, at::kFloat);
  EXPECT_TRUE(y[1].isnan().all().item<bool>());
  EXPECT_TRUE(y[0].isfinite().all().item<bool>());
  x[1][5] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(sent_signs(x, at::kFloat)[1].isinf().all().item<bool>());
}

}  // namespace
}  // namespace trireme::parallel
