#include "trireme/parallel/data/compression/feedback_hooks.h"

#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/parallel/data/compression/hook_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace testing;

constexpr int64_t kRank = 2;

std::shared_ptr<GradientHook> power_sgd() {
  return std::make_shared<PowerSgdHook>(PowerSgdOptions{.rank = kRank});
}

at::Tensor as_matrix(const at::Tensor& tensor) { return tensor.reshape({tensor.size(0), -1}); }

bool is_compressed(size_t parameter) {
  const auto& shape = shapes()[parameter];
  if (shape.empty() || shape[0] == 0) return false;
  const int64_t rows = shape[0];
  const int64_t columns = at::zeros(shape).numel() / rows;
  return kRank * (rows + columns) < rows * columns;
}

// Gram-Schmidt, twice: any orthonormal basis of P's columns gives the same projection.
at::Tensor orthonormal(const at::Tensor& p) {
  std::vector<at::Tensor> columns;
  for (at::Tensor column : p.unbind(1)) {
    for (int pass = 0; pass < 2; ++pass) {
      for (const at::Tensor& other : columns) column = column - other * other.dot(column);
    }
    columns.push_back(column / column.norm());
  }
  return at::stack(columns, 1);
}

TEST(PowerSgdHook, CompressesMatricesThatGetSmaller) {
  std::vector<size_t> compressed;
  for (size_t i = 0; i < shapes().size(); ++i) {
    if (is_compressed(i)) compressed.push_back(i);
  }
  EXPECT_EQ(compressed, (std::vector<size_t>{0, 4, 6}));
  const HookRun run = run_hook(2, power_sgd, waves(at::kFloat));
  for (size_t i = 0; i < shapes().size(); ++i) {
    EXPECT_EQ(run.states[0][0].contains("q." + name_of(i)), is_compressed(i));
    EXPECT_EQ(run.states[0][0].contains("error." + name_of(i)), is_compressed(i));
    if (is_compressed(i)) continue;
    harness::assert_same_bits(run.sums[2][i], plain_sums(2, waves(at::kFloat), 2)[i], name_of(i));
  }
}

// The sum projected on the columns of (sum of M) Q, and each rank's residual what that leaves of
// its own M. fp64 against fp64: products of up to 256 terms and a basis whose condition is below
// 1e3.
TEST(PowerSgdHook, ProjectsTheSumByItsDefinition) {
  constexpr double kTolerance = 256 * 1e3 * 0x1p-53;
  for (const int ranks : {1, 2, 3, 4}) {
    const HookRun run = run_hook(ranks, power_sgd, waves(at::kDouble));
    for (const size_t i : {0u, 4u, 6u}) {
      for (size_t step = 1; step < 3; ++step) {  // with the Q and the residuals of the step before
        const std::vector<State>& before = run.states[step - 1];
        std::vector<at::Tensor> ms;
        at::Tensor sum;
        for (int r = 0; r < ranks; ++r) {
          const at::Tensor gradient = waves(at::kDouble)(static_cast<int>(step), r, i);
          ms.push_back(
              as_matrix(gradient + before[static_cast<size_t>(r)].at("error." + name_of(i))));
          sum = r == 0 ? ms[0] : sum + ms.back();
        }
        const at::Tensor p = orthonormal(sum.mm(before[0].at("q." + name_of(i))));
        const std::string what = concat(ranks, " ranks, ", name_of(i), ", step ", step);
        harness::assert_close(as_matrix(run.sums[step][i]), p.mm(p.t().mm(sum)), kTolerance, 0,
                              what);
        for (size_t r = 0; r < ms.size(); ++r) {
          harness::assert_close(as_matrix(run.states[step][r].at("error." + name_of(i))),
                                ms[r] - p.mm(p.t().mm(ms[r])), kTolerance, 0, what);
        }
      }
    }
  }
}

TEST(PowerSgdHook, GradientsOfItsRankComeThroughWhole) {
  const MakeGradient gradient = [](int step, int rank, size_t parameter) {
    const at::Tensor wave = waves(at::kDouble)(step, rank, parameter);
    if (!is_compressed(parameter)) return wave;
    // The same columns on every rank, other weights.
    const at::Tensor columns =
        as_matrix(waves(at::kDouble)(step, 0, parameter)).narrow(1, 0, kRank);
    const at::Tensor weights = as_matrix(wave).narrow(0, 0, kRank);
    return columns.mm(weights).view(wave.sizes());
  };
  const HookRun run = run_hook(3, power_sgd, gradient, {.steps = 1});
  for (const size_t i : {0u, 4u, 6u}) {
    harness::assert_close(run.sums[0][i], plain_sums(3, gradient, 0)[i], 256 * 1e3 * 0x1p-53, 0,
                          name_of(i));
  }
}

// A warm Q turns towards the largest singular vectors: of one gradient again and again, without
// residuals, the projection would approach the best approximation of its rank. With them, what is
// given over N steps approaches N times the gradient: the residual stays, the total grows.
TEST(PowerSgdHook, AConstantGradientArrivesInTheMean) {
  const MakeGradient constant = [](int, int rank, size_t parameter) {
    return waves(at::kDouble)(0, rank, parameter);
  };
  constexpr int kSteps = 40;
  const HookRun run = run_hook(2, power_sgd, constant, {.steps = kSteps});
  const at::Tensor expected = plain_sums(2, constant, 0)[0];
  at::Tensor early = at::zeros_like(expected), late = early.clone();
  for (size_t step = 0; step < kSteps; ++step)
    (step < kSteps / 2 ? early : late) += run.sums[step][0];
  const double off_early = (early / (kSteps / 2) - expected).norm().item<double>();
  const double off_late = (late / (kSteps / 2) - expected).norm().item<double>();
  EXPECT_LT(off_late, off_early);
  EXPECT_LT(off_late, 0.2 * expected.norm().item<double>());
}

TEST(PowerSgdHook, SentAndResidualAreAllThereWas) {
  expect_error_feedback_keeps_everything(power_sgd);
}

TEST(PowerSgdHook, BucketsAndAResumeChangeNoBit) {
  expect_bucketing_and_resume_change_no_bit(power_sgd, at::kFloat);
  expect_bucketing_and_resume_change_no_bit(power_sgd, at::kBFloat16);
}

TEST(PowerSgdHook, PutsThinMatricesOnTheWire) {
  int64_t thin = 0, others = 0;
  for (size_t i = 0; i < shapes().size(); ++i) {
    const int64_t n = at::zeros(shapes()[i]).numel();
    if (is_compressed(i)) {
      thin += kRank * (shapes()[i][0] + n / shapes()[i][0]);
    } else {
      others += n;
    }
  }
  for (const auto& [dtype, width] : {std::pair{at::kFloat, 4}, std::pair{at::kBFloat16, 2}}) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int64_t num_bytes : run_hook(ranks, power_sgd, waves(dtype)).bytes) {
        EXPECT_NEAR(static_cast<double>(num_bytes),
                    2.0 * (ranks - 1) / ranks * static_cast<double>(4 * thin + width * others), 3);
      }
    }
  }
}

TEST(PowerSgdHook, StepsThatAreNotFiniteSayAndLeaveNoTrace) {
  for (const double bad : {std::nan(""), double{INFINITY}}) {
    const MakeGradient gradient = [&](int step, int rank, size_t parameter) {
      at::Tensor result = waves(at::kFloat)(step, rank, parameter);
      if (step == 0 && rank == 1 && result.numel() > 0) result.view(-1)[0] = bad;
      return result;
    };
    const HookRun run = run_hook(2, power_sgd, gradient);
    for (size_t i = 0; i < shapes().size(); ++i) {
      if (shapes()[i] == std::vector<int64_t>{0, 3}) continue;
      EXPECT_FALSE(run.sums[0][i].isfinite().all().item<bool>()) << name_of(i);
      EXPECT_TRUE(run.sums[1][i].isfinite().all().item<bool>()) << name_of(i);
      if (!is_compressed(i)) continue;
      EXPECT_GT(run.sums[1][i].abs().max().item<double>(), 0) << name_of(i);
    }
  }
}

TEST(PowerSgdHook, ZerosStayZerosAndDoNotStopIt) {
  const MakeGradient gradient = [](int step, int rank, size_t parameter) {
    const at::Tensor wave = waves(at::kFloat)(step, rank, parameter);
    return step == 0 ? at::zeros_like(wave) : wave;
  };
  const HookRun run = run_hook(2, power_sgd, gradient);
  EXPECT_TRUE(run.sums[0][0].eq(0).all().item<bool>());
  EXPECT_TRUE(run.sums[2][0].ne(0).any().item<bool>());
}

TEST(PowerSgdHook, RanksBelowOneAreRefused) {
  EXPECT_THROW(PowerSgdHook({.rank = 0}), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
