#include "trireme/train/optimizer/state_format.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/tensors.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

struct Encoded {
  at::Tensor codes, scales;
};

Encoded encode(const at::Tensor& values, bool is_positive) {
  Encoded result{at::empty(values.sizes(), values.options().dtype(at::kByte)),
                 at::empty({values.numel() / kStateBlock}, values.options())};
  encode_blocks(values, result.codes, result.scales, is_positive);
  return result;
}

at::Tensor decode(const Encoded& encoded, bool is_positive) {
  at::Tensor values = at::empty(encoded.codes.sizes(), encoded.scales.options());
  decode_blocks(encoded.codes, encoded.scales, values, is_positive);
  return values;
}

// Magnitudes over seven decades, of both signs or of one; the blocks' largest ones differ.
at::Tensor spread(int64_t blocks, bool is_positive) {
  const at::Tensor index = at::arange(blocks * kStateBlock, at::kDouble);
  const at::Tensor size = at::pow(10, (index * 0.37).sin() * 3.5 + (index * 0.001).cos());
  const at::Tensor values = is_positive ? size : size * (index * 1.7).sin();
  return values.to(at::kFloat);
}

// All that the codes stand for, of a block whose scale is 1.
at::Tensor all_values(bool is_positive) {
  return decode({at::arange(256, at::kByte), at::ones({256 / kStateBlock})}, is_positive);
}

TEST(StateFormat, CodesAreTheDynamicNumbersOfThePaper) {
  const at::Tensor both = all_values(false), positive = all_values(true);
  for (const at::Tensor& values : {both, positive}) {
    EXPECT_TRUE(values.diff().gt(0).all().item<bool>()) << "ascending";
    EXPECT_EQ(values[255].item<float>(), 1);
    EXPECT_EQ(values.eq(0).sum().item<int64_t>(), 1);
  }
  EXPECT_EQ(positive[0].item<float>(), 0);
  EXPECT_NEAR(positive[1].item<float>(), 1e-6 * (0.1 + 0.9 / 4), 1e-12);
  EXPECT_EQ(both.lt(0).sum().item<int64_t>(), 127);
  EXPECT_EQ(both.gt(0).sum().item<int64_t>(), 128);
  // 64 of a sign between 0.1 and 1, twice as many of one sign only.
  EXPECT_EQ(both.gt(0.1).sum().item<int64_t>(), 65);
  EXPECT_EQ(positive.gt(0.1).sum().item<int64_t>(), 129);
}

TEST(StateFormat, EveryNumberGetsTheNearestCodeOfItsBlock) {
  for (const bool is_positive : {false, true}) {
    const at::Tensor values = spread(300, is_positive);
    const at::Tensor found = decode(encode(values, is_positive), is_positive);
    const at::Tensor blocks = values.view({-1, kStateBlock});
    const at::Tensor scales = blocks.abs().amax(1, true);
    // What is above 0 does not become 0.
    at::Tensor codes = all_values(is_positive);
    if (is_positive) codes = codes.narrow(0, 1, 255);
    const at::Tensor distances = ((blocks / scales).unsqueeze(-1) - codes).abs().amin(-1) * scales;
    // The quotient, the code's number and its product round once each.
    harness::assert_close((found - values).abs().view_as(distances), distances, 0,
                          4 * std::ldexp(scales.max().item<double>(), -24), "distance");
    // Half the spacing below the block's largest number.
    const double spacing = is_positive ? 0.9 / 128 : 0.9 / 64;
    EXPECT_LE(((found - values).abs().view_as(blocks) / scales).max().item<double>(),
              spacing / 2 * 1.0001);
  }
}

TEST(StateFormat, WhatACodeStandsForIsEncodedAsThatCode) {
  for (const bool is_positive : {false, true}) {
    // 1 in each block: the scale is that of the codes.
    at::Tensor codes = at::arange(240, at::kByte).view({5, 48});
    codes = at::cat({codes, at::full({5, 16}, 255, at::kByte)}, 1).view({-1});
    const at::Tensor scales = at::tensor({1.0f, 3e-30f, 0.37f, 1e30f, 2.0f});
    const Encoded again = encode(decode({codes, scales}, is_positive), is_positive);
    harness::assert_same_bits(again.codes, codes, "codes");
    harness::assert_same_bits(again.scales, scales, "scales");
  }
}

// Else a step whose gradient is 0 would divide what is left of the first moment by epsilon alone.
TEST(StateFormat, ASecondMomentAboveZeroStaysAboveZero) {
  at::Tensor values = at::zeros({kStateBlock});
  values[0] = 1;
  values[1] = 1e-20;
  const at::Tensor found = decode(encode(values, /*is_positive=*/true), /*is_positive=*/true);
  EXPECT_GT(found[1].item<float>(), 1e-8);
  EXPECT_EQ(found[2].item<float>(), 0);
}

TEST(StateFormat, ZerosStayZerosAndWhatIsNoNumberIsSeen) {
  const at::Tensor zeros = at::zeros({2 * kStateBlock});
  for (const bool is_positive : {false, true}) {
    harness::assert_same_bits(decode(encode(zeros, is_positive), is_positive), zeros, "zeros");
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      at::Tensor values = at::ones({2 * kStateBlock});
      values[3] = bad;
      const at::Tensor found = decode(encode(values, is_positive), is_positive);
      EXPECT_FALSE(found[3].isfinite().item<bool>());
      EXPECT_TRUE(found.narrow(0, kStateBlock, kStateBlock).eq(1).all().item<bool>())
          << "the other block";
    }
  }
}

TEST(StateFormat, ADeviceComputesTheHostsCodes) {
  for (const bool is_positive : {false, true}) {
    const at::Tensor values = spread(50, is_positive);
    values.narrow(0, 3 * kStateBlock + 1, 9).mul_(1e-12);
    values.narrow(0, 0, kStateBlock).zero_();
    const Encoded host = encode(values, is_positive);
    const Encoded device = encode(values.to(harness::fake_device(0)), is_positive);
    harness::assert_same_bits(device.codes.cpu(), host.codes, "codes");
    harness::assert_same_bits(device.scales.cpu(), host.scales, "scales");
    harness::assert_same_bits(decode(device, is_positive).cpu(), decode(host, is_positive),
                              "values");
  }
}

parallel::Shard shard_of(const mesh::Layout& layout, int rank) {
  return {.name = "w",
          .weights = at::zeros(layout.local_box(rank).size),
          .layout = layout,
          .rank = rank};
}

HeldState held(const parallel::Shard& shard, StateDtype format) {
  return held_state(state_like(shard, "exp_avg"), shard, format, at::kFloat);
}

TEST(StateFormat, ScalesLieLikeTheirBlocks) {
  // Rows cut by the tensor axis, and a part of them by ZeRO.
  const mesh::Layout tensor({6, 256}, {{"tensor", 2}}, {mesh::Placement::sharded(1)});
  const mesh::Layout zero =
      mesh::Layout({6, 128}, {{"shard", 2}}, {mesh::Placement::sharded(0, {0, 4, 6})})
          .inside(tensor, 1);
  const HeldState state = held(shard_of(zero, 1), StateDtype::kInt8);
  ASSERT_EQ(state.tensors.size(), 2U);
  EXPECT_EQ(state.tensors[0].name, "exp_avg");
  EXPECT_EQ(state.tensors[0].dtype, at::kByte);
  EXPECT_EQ(state.tensors[1].name, "exp_avg_scale");
  EXPECT_EQ(state.tensors[1].local_shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(state.tensors[1].layout.whole_shape(), (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(state.tensors[1].layout.whole_box(1), (mesh::Box{{4, 2}, {2, 2}}));
  EXPECT_EQ(state.tensors[0].num_bytes() + state.tensors[1].num_bytes(), 2 * 128 + 2 * 2 * 4);
}

TEST(StateFormat, WhatHasNoWholeBlocksStaysWide) {
  const auto format_of = [](std::vector<int64_t> shape, StateDtype format) {
    return held(shard_of(mesh::Layout(shape, {{"shard", 1}}), 0), format);
  };
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{128}, {64, 100}, {8, 4, 3, 3}, {64, 0}}) {
    EXPECT_EQ(format_of(shape, StateDtype::kInt8).tensors[0].dtype, at::kFloat);
    EXPECT_EQ(format_of(shape, StateDtype::kBf16).tensors[0].dtype, at::kBFloat16);
  }
  EXPECT_EQ(format_of({3, 64}, StateDtype::kFp32).tensors[0].dtype, at::kFloat);
  EXPECT_EQ(format_of({3, 64}, StateDtype::kInt8).tensors[0].dtype, at::kByte);
}

TEST(StateFormat, BlocksThatAreCutAreRefusedWithTheParameterOnEveryRank) {
  const mesh::Layout cut({4, 128}, {{"tensor", 4}}, {mesh::Placement::sharded(1)});
  for (int rank = 0; rank < 4; ++rank) {
    try {
      held(shard_of(cut, rank), StateDtype::kInt8);
      ADD_FAILURE() << "rank " << rank;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("the rows of w are cut at element 32"));
      EXPECT_THAT(error.what(), testing::HasSubstr("choose bf16"));
    }
    EXPECT_EQ(held(shard_of(cut, rank), StateDtype::kBf16).tensors[0].local_shape[1], 32);
  }
}

}  // namespace
}  // namespace trireme::train
