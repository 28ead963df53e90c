#include "trireme/parallel/data/compression/narrow_hooks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/parallel/data/compression/hook_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace testing;

MakeHook cast(at::ScalarType wire) {
  return [wire] { return std::make_shared<CastHook>(wire); };
}

// The definition, element by element.
template <typename Wire>
at::Tensor rounded_sum(int ranks, const MakeGradient& gradient, int step, size_t parameter) {
  at::Tensor result = gradient(step, 0, parameter).clone();
  std::vector<at::Tensor> terms;
  for (int r = 0; r < ranks; ++r) {
    terms.push_back(gradient(step, r, parameter).to(at::kFloat).reshape(-1));
  }
  const at::Tensor out = at::empty_like(terms[0]);
  for (int64_t e = 0; e < out.numel(); ++e) {
    float sum = 0;
    for (size_t r = 0; r < terms.size(); ++r) {
      const float term = static_cast<Wire>(terms[r].data_ptr<float>()[e]);
      sum = r == 0 ? term : sum + term;
    }
    out.data_ptr<float>()[e] = static_cast<Wire>(sum);
  }
  return result.copy_(out.view(result.sizes()));
}

TEST(CastHook, RoundsEachTermAndTheSumOnce) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(concat(ranks, " ranks, gradients ", dtype));
      const HookRun bf16 = run_hook(ranks, cast(at::kBFloat16), waves(dtype), {.steps = 2});
      const HookRun fp16 = run_hook(ranks, cast(at::kHalf), waves(dtype), {.steps = 2});
      for (size_t i = 0; i < shapes().size(); ++i) {
        harness::assert_same_bits(bf16.sums[1][i],
                                  rounded_sum<at::BFloat16>(ranks, waves(dtype), 1, i), name_of(i));
        harness::assert_same_bits(fp16.sums[1][i], rounded_sum<at::Half>(ranks, waves(dtype), 1, i),
                                  name_of(i));
      }
    }
  }
}

// A term and the sum are off by 2^-8 (bf16) or 2^-11 (fp16) of themselves; fp16's subnormals by
// 2^-25. The additions in fp32 round by 2^-24, and that the sum's rounding is of a sum already off
// adds the square: a factor of 1.01 holds both.
TEST(CastHook, IsWithinTheRoundingsOfTheSum) {
  for (const auto& [wire, unit, tiny] :
       {std::tuple{at::kBFloat16, 1.0 / 256, 0.0}, std::tuple{at::kHalf, 1.0 / 2048, 0x1p-25}}) {
    const HookRun run = run_hook(4, cast(wire), waves(at::kDouble), {.steps = 1});
    const Gradients exact = plain_sums(4, waves(at::kDouble), 0);
    for (size_t i = 0; i < shapes().size(); ++i) {
      at::Tensor sizes = exact[i].abs();
      for (int r = 0; r < 4; ++r) sizes = sizes + waves(at::kDouble)(0, r, i).abs();
      const at::Tensor error = (run.sums[0][i] - exact[i]).abs();
      EXPECT_TRUE((error <= sizes * (1.01 * unit) + 5 * tiny).all().item<bool>()) << name_of(i);
    }
  }
}

TEST(CastHook, BucketsAndAResumeChangeNoBit) {
  expect_bucketing_and_resume_change_no_bit(cast(at::kBFloat16), at::kFloat);
  expect_bucketing_and_resume_change_no_bit(cast(at::kHalf), at::kFloat);
}

TEST(CastHook, PutsTwoBytesAnElementOnTheWire) {
  int64_t padded = 0;
  for (const auto& shape : shapes()) padded += (at::zeros(shape).numel() + 15) / 16 * 16;
  for (const int ranks : {1, 2, 4}) {
    const HookRun run = run_hook(ranks, cast(at::kBFloat16), waves(at::kFloat));
    for (const int64_t num_bytes : run.bytes) {
      EXPECT_EQ(num_bytes, 2 * (ranks - 1) * 2 * padded / ranks);
    }
  }
}

TEST(CastHook, WhatFp16CannotHoldBecomesInfinite) {
  const MakeGradient large = [](int, int, size_t parameter) {
    return at::full(shapes()[parameter], 4e4, at::kFloat);
  };
  EXPECT_TRUE(run_hook(2, cast(at::kHalf), large).sums[0][0].isinf().all().item<bool>());
  EXPECT_TRUE(run_hook(2, cast(at::kBFloat16), large).sums[0][0].isfinite().all().item<bool>());
}

TEST(CastHook, OtherDtypesAreRefused) { EXPECT_THROW(CastHook(at::kFloat), ConfigError); }

}  // namespace
}  // namespace trireme::parallel
