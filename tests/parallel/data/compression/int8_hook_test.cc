#include "trireme/parallel/data/compression/narrow_hooks.h"

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/parallel/data/compression/hook_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace testing;

std::shared_ptr<GradientHook> int8() { return std::make_shared<Int8Hook>(); }

// What a coded block decodes to, element by element.
std::vector<float> coded(const std::vector<float>& block) {
  float largest = 0;
  for (const float x : block) largest = std::max(largest, std::abs(x));
  const float scale = largest / 127;
  std::vector<float> result;
  for (const float x : block) {
    result.push_back(scale == 0 ? 0 : std::clamp(std::nearbyint(x / scale), -127.f, 127.f) * scale);
  }
  return result;
}

at::Tensor coded_sum(int ranks, const MakeGradient& gradient, size_t parameter) {
  const at::Tensor result = gradient(0, 0, parameter).clone();
  const at::Tensor out = at::empty({result.numel()}, at::kFloat);
  for (int64_t begin = 0; begin < out.numel(); begin += kInt8Block) {
    const int64_t length = std::min(kInt8Block, out.numel() - begin);
    std::vector<float> sum(static_cast<size_t>(length));
    for (int r = 0; r < ranks; ++r) {
      const at::Tensor term = gradient(0, r, parameter).to(at::kFloat).reshape(-1);
      const float* x = term.data_ptr<float>() + begin;
      const std::vector<float> block = coded({x, x + length});
      for (size_t e = 0; e < sum.size(); ++e) sum[e] = r == 0 ? block[e] : sum[e] + block[e];
    }
    const std::vector<float> block = coded(sum);
    std::copy(block.begin(), block.end(), out.data_ptr<float>() + begin);
  }
  result.copy_(out.view(result.sizes()));
  return result;
}

// -0 and 0 are equal here: the hook's zeros come out of int8, which has one.
TEST(Int8Hook, HasTheValuesOfItsDefinition) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(concat(ranks, " ranks, gradients ", dtype));
      const HookRun run = run_hook(ranks, int8, waves(dtype), {.steps = 1});
      for (size_t i = 0; i < shapes().size(); ++i) {
        EXPECT_TRUE(at::equal(run.sums[0][i], coded_sum(ranks, waves(dtype), i))) << name_of(i);
      }
    }
  }
}

// Half a step of each rank's block and of the sum's; the blocks' largest bound the steps. 1.01
// holds that the sum's largest is of a sum already off, and fp32's rounding.
TEST(Int8Hook, IsWithinHalfAStepOfEachBlock) {
  constexpr int kRanks = 4;
  const HookRun run = run_hook(kRanks, int8, waves(at::kFloat), {.steps = 1});
  const MakeGradient exact_gradient = waves(at::kDouble);
  for (size_t i = 0; i < shapes().size(); ++i) {
    const at::Tensor exact = plain_sums(kRanks, exact_gradient, 0)[i].reshape(-1);
    const at::Tensor error = (run.sums[0][i].reshape(-1) - exact).abs();
    for (int64_t begin = 0; begin < exact.numel(); begin += kInt8Block) {
      const int64_t length = std::min(kInt8Block, exact.numel() - begin);
      const auto largest = [&](const at::Tensor& x) {
        return x.reshape(-1).narrow(0, begin, length).abs().max().item<double>();
      };
      double bound = largest(exact);
      for (int r = 0; r < kRanks; ++r) bound += largest(exact_gradient(0, r, i));
      EXPECT_LE(largest(error), 1.01 * bound / 254) << name_of(i) << " from " << begin;
    }
  }
}

TEST(Int8Hook, BucketsAndAResumeChangeNoBit) {
  expect_bucketing_and_resume_change_no_bit(int8, at::kFloat);
}

TEST(Int8Hook, PutsABlockInto260Bytes) {
  int64_t num_blocks = 0;
  for (const auto& shape : shapes()) num_blocks += (at::zeros(shape).numel() + 255) / 256;
  for (const int ranks : {1, 2, 3, 4}) {
    int64_t all = 0;
    for (const int64_t num_bytes : run_hook(ranks, int8, waves(at::kFloat)).bytes) all += num_bytes;
    // Over all ranks: where blocks cannot be shared out evenly, some send more than others.
    EXPECT_NEAR(static_cast<double>(all), 2.0 * (ranks - 1) * 260 * static_cast<double>(num_blocks),
                ranks);
  }
}

TEST(Int8Hook, WhatIsNotFiniteSpoilsItsBlockAndNoOther) {
  for (const double bad : {std::nan(""), double{INFINITY}, -double{INFINITY}}) {
    const MakeGradient gradient = [&](int step, int rank, size_t parameter) {
      at::Tensor result = waves(at::kFloat)(step, rank, parameter);
      if (rank == 1 && parameter == 0) result.view(-1)[300] = bad;
      return result;
    };
    const Gradients sums = run_hook(2, int8, gradient).sums[0];
    const at::Tensor flat = sums[0].view(-1);
    EXPECT_TRUE(flat.narrow(0, 256, 256).isnan().all().item<bool>());
    EXPECT_TRUE(flat.narrow(0, 0, 256).isfinite().all().item<bool>());
    EXPECT_TRUE(flat.narrow(0, 512, 256).isfinite().all().item<bool>());
    EXPECT_TRUE(sums[4].isfinite().all().item<bool>());
  }
}

TEST(Int8Hook, ZerosStayZeros) {
  const MakeGradient zeros = [](int, int, size_t parameter) {
    return at::zeros(shapes()[parameter], at::kFloat);
  };
  const HookRun run = run_hook(3, int8, zeros);
  for (const at::Tensor& sum : run.sums[0]) {
    EXPECT_TRUE(sum.eq(0).all().item<bool>());
  }
}

}  // namespace
}  // namespace trireme::parallel
