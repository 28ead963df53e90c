#include "trireme/model/layers/norm.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/harness/fake_device.h"
#include "tests/harness/gradients.h"

namespace trireme::model {
namespace {

using namespace harness;

constexpr double kEpsilon = 1e-5;

at::Tensor composed_norm(const Tensors& in) {
  return in[0] * at::rsqrt(in[0].square().mean(-1, true) + kEpsilon) * in[1];
}

TEST(RmsNorm, EqualsItsFormula) {
  for (const int64_t width : {1, 2, 31, 32, 33, 256}) {
    assert_same_function([](const Tensors& in) { return rms_norm(in[0], in[1], kEpsilon); },
                         composed_norm, {values({3, 5, width}, 0.37, 2), values({width}, 0.9, 2)},
                         1e-12);
  }
}

// As in Gemma: its weights are stored less one.
TEST(RmsNorm, WithAnOffsetEqualsTheFormulaOfTheSum) {
  for (const int64_t width : {1, 33, 256}) {
    assert_same_function(
        [](const Tensors& in) { return rms_norm(in[0], in[1], kEpsilon, /*offset=*/1); },
        [](const Tensors& in) {
          return composed_norm({in[0], in[1] + 1});
        },
        {values({3, 5, width}, 0.37, 2), values({width}, 0.9, 0.3)}, 1e-12);
  }
}

// 1 + w, rounded to bf16 or fp16, would lose w.
TEST(RmsNorm, AnOffsetIsAddedInFp32) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const at::Tensor x = values({3, 16}, 0.37, 1, dtype), weight = values({16}, 0.9, 1e-3, dtype);
    const at::Tensor expected =
        rms_norm(x.to(at::kFloat), weight.to(at::kFloat), kEpsilon, /*offset=*/1);
    assert_same_bits(rms_norm(x, weight, kEpsilon, /*offset=*/1), expected.to(dtype), "norm");
  }
}

TEST(RmsNorm, SumsTheWeightsGradientOverMoreRowsThanOneBlock) {
  assert_same_function([](const Tensors& in) { return rms_norm(in[0], in[1], kEpsilon); },
                       composed_norm, {values({401, 40}, 0.37), values({40}, 0.9)}, 1e-12);
}

TEST(RmsNorm, BranchAddsTheResidualsGradient) {
  assert_same_function(
      [](const Tensors& in) {
        const auto [x, y] = rms_norm_branch(in[0], in[1], kEpsilon);
        return x * 3 + y;
      },
      [](const Tensors& in) { return in[0] * 3 + composed_norm(in); },
      {values({4, 10}, 0.37), values({10}, 0.9)}, 1e-12);
  assert_same_function(
      [](const Tensors& in) { return rms_norm_branch(in[0], in[1], kEpsilon).first * in[1]; },
      [](const Tensors& in) { return in[0] * in[1]; }, {values({4, 10}, 0.37), values({10}, 0.9)},
      1e-12);
}

TEST(RmsNorm, ThreadsDoNotChangeBits) {
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    return value_and_gradients(
        [](const Tensors& in) { return rms_norm(in[0], in[1], kEpsilon); },
        {values({1000, 48}, 0.37, 1, at::kFloat), values({48}, 0.9, 1, at::kFloat)});
  };
  const int before = at::get_num_threads();
  const Tensors one = run(1);
  const Tensors three = run(3);
  at::set_num_threads(before);
  for (size_t i = 0; i < 3; ++i) harness::assert_same_bits(three[i], one[i], "threads");
}

TEST(RmsNorm, ADeviceComputesWhatTheHostComputes) {
  const auto run = [](at::Device device, double offset) {
    const Tensors leaves = {values({3, 5, 33}, 0.37, 2).to(device).requires_grad_(),
                            values({33}, 0.9, 2).to(device).requires_grad_()};
    const auto [x, y] = rms_norm_branch(leaves[0], leaves[1], kEpsilon, offset);
    Tensors result = torch::autograd::grad({(x * 3 + y).square().sum()}, leaves);
    result.push_back(y.detach());
    for (at::Tensor& each : result) each = each.cpu();
    return result;
  };
  for (const double offset : {0.0, 1.0}) {
    const Tensors host = run(at::kCPU, offset), device = run(fake_device(0), offset);
    for (size_t i = 0; i < host.size(); ++i) {
      assert_close(device[i], host[i], 1e-13, 1e-13, std::to_string(i));
    }
  }
}

TEST(RmsNorm, Bf16IsTheRoundingOfFp32) {
  const at::Tensor x = values({3, 16}, 0.37, 1, at::kBFloat16);
  const at::Tensor weight = at::ones({16}, at::kBFloat16);
  const at::Tensor expected = rms_norm(x.to(at::kFloat), weight.to(at::kFloat), kEpsilon);
  // One rounding to 8 bits of significand, of values up to 2.
  harness::assert_close(rms_norm(x, weight, kEpsilon), expected, 0x1p-8, 0, "bf16");
}

// Every result is computed in fp32 from the same numbers and rounded once.
TEST(RmsNorm, NarrowGradientsAreRoundedOnce) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    for (const int64_t width : {1, 31, 32, 33, 256}) {
      const Tensors operands = {values({300, width}, 0.37, 1, dtype),
                                values({width}, 0.9, 1, dtype),
                                values({300, width}, 0.53, 1, dtype)};
      const auto gradients = [&](at::ScalarType computed) {
        Tensors leaves;
        for (const at::Tensor& each : operands)
          leaves.push_back(
              each.to(computed, /*non_blocking=*/false, /*copy=*/true).requires_grad_());
        const auto [x, y] = rms_norm_branch(leaves[0], leaves[1], kEpsilon);
        return torch::autograd::grad({y}, {leaves[0], leaves[1]}, {leaves[2].detach()});
      };
      const Tensors narrow = gradients(dtype), fp32 = gradients(at::kFloat);
      for (size_t i = 0; i < narrow.size(); ++i) {
        assert_same_bits(narrow[i], fp32[i].to(dtype), std::to_string(width));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::model
