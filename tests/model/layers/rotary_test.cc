#include "trireme/model/layers/rotary.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/gradients.h"

namespace trireme::model {
namespace {

using namespace harness;

// Hugging Face's form: x * cos + rotate_half(x) * sin, with both tables doubled.
at::Tensor rotate_half(const at::Tensor& x_BTD, int64_t heads, const RotaryTable& table) {
  const int64_t T = x_BTD.size(1);
  const at::Tensor x = x_BTD.view({x_BTD.size(0), T, heads, -1});
  const int64_t half = x.size(3) / 2;
  const at::Tensor turned = at::cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, 3);
  const auto doubled = [&](const at::Tensor& t) {
    return at::cat({t, t}, 1).narrow(0, 0, T).unsqueeze(1);
  };
  return (x * doubled(table.cos_TH) + turned * doubled(table.sin_TH)).view_as(x_BTD);
}

TEST(Rotary, EqualsRotateHalf) {
  for (const int64_t head_width : {2, 6, 64}) {
    const RotaryTable table(9, head_width, 10000, at::kDouble);
    assert_same_function(
        [&](const Tensors& in) { return apply_rotary(in[0], table.cos_TH, table.sin_TH); },
        [&](const Tensors& in) { return rotate_half(in[0], 3, table); },
        {values({2, 7, 3 * head_width}, 0.37)}, 1e-14);
  }
}

TEST(Rotary, TheRestOfAHeadPassesUnturned) {
  const RotaryTable table(9, 6, 10000, at::kDouble);
  const auto parts = [](const at::Tensor& x) {
    return x.unflatten(2, {3, 10}).split_with_sizes({6, 4}, 3);
  };
  const auto expected = [&](const Tensors& in) {
    const Tensors x = parts(in[0]);
    const at::Tensor turned = rotate_half(x[0].flatten(2), 3, table).unflatten(2, {3, 6});
    return at::cat({turned, x[1]}, 3).flatten(2);
  };
  for (const bool is_intermediate : {true, false}) {
    assert_same_function(
        [&](const Tensors& in) {
          const at::Tensor x =
              is_intermediate ? in[0] * 1 : in[0].transpose(0, 1).contiguous().transpose(0, 1);
          return apply_rotary(x, table.cos_TH, table.sin_TH, 10);
        },
        expected, {values({2, 7, 30}, 0.37)}, 1e-14);
  }
}

TEST(Rotary, ADeviceTurnsAsTheHost) {
  RotaryTable table(9, 6, 10000, at::kDouble);
  const auto turn = [&](at::Device device) {
    table.move_to(device);
    const at::Tensor x = values({2, 7, 18}, 0.37).to(device).requires_grad_();
    const at::Tensor turned = apply_rotary(x * 1, table.cos_TH, table.sin_TH);
    const at::Tensor weight = values({2, 7, 18}, 0.73).to(device);
    const at::Tensor grad = torch::autograd::grad({(turned * weight).sum()}, {x})[0];
    return Tensors{turned.detach().cpu(), grad.cpu()};
  };
  const Tensors host = turn(at::kCPU), device = turn(fake_device(0));
  assert_close(device[0], host[0], 0, 1e-15, "turned");
  assert_close(device[1], host[1], 0, 1e-15, "gradient");
}

TEST(Rotary, NarrowNumbersAreRoundedOnce) {
  const RotaryTable table(9, 6, 10000, at::kFloat);
  const at::Tensor x = values({2, 7, 18}, 0.37, 1, at::kBFloat16);
  const at::Tensor expected = apply_rotary(x.to(at::kFloat), table.cos_TH, table.sin_TH);
  const at::Tensor turned = apply_rotary(x, table.cos_TH, table.sin_TH);
  assert_same_bits(turned, expected.to(at::kBFloat16), "bf16");
}

TEST(Rotary, TableHoldsAnglesOfPositionTimesFrequency) {
  const RotaryTable table(5, 8, 100, at::kDouble);
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t i = 0; i < 4; ++i) {
      const double angle =
          static_cast<double>(t) * std::pow(100, -2.0 * static_cast<double>(i) / 8);
      EXPECT_NEAR(table.cos_TH[t][i].item<double>(), std::cos(angle), 1e-14);
      EXPECT_NEAR(table.sin_TH[t][i].item<double>(), std::sin(angle), 1e-14);
    }
  }
}

TEST(Rotary, AShardOfTheSequenceReadsItsRows) {
  const RotaryTable table(8, 4, 10000, at::kFloat);
  const at::Tensor x = values({1, 8, 8}, 0.37, 1, at::kFloat);
  const at::Tensor whole = apply_rotary(x.clone(), table.cos_TH, table.sin_TH);
  const at::Tensor part = apply_rotary(x.narrow(1, 3, 5).clone(), table.cos_TH.narrow(0, 3, 5),
                                       table.sin_TH.narrow(0, 3, 5));
  harness::assert_same_bits(part, whole.narrow(1, 3, 5), "shard");
}

TEST(Rotary, ARankWithoutSequencesOrTokensHasNothingToTurn) {
  const RotaryTable table(8, 4, 10000, at::kFloat);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{0, 8, 12}, {2, 0, 12}}) {
      const at::Tensor turned = apply_rotary(at::zeros(shape, dtype), table.cos_TH, table.sin_TH);
      EXPECT_EQ(turned.sizes(), at::IntArrayRef(shape));
      EXPECT_EQ(turned.scalar_type(), dtype);
    }
  }
}

}  // namespace
}  // namespace trireme::model
