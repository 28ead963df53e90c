#include "trireme/parallel/data/compression/feedback_hooks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/tensors.h"
#include "tests/parallel/data/compression/hook_runs.h"
#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using namespace testing;

MakeHook top_k(double ratio) {
  return [ratio] { return std::make_shared<TopKHook>(ratio); };
}

// The definition, in plain loops, of one parameter over all steps and ranks.
struct Model {
  std::vector<std::vector<double>> sums;       // [steps]
  std::vector<std::vector<double>> residuals;  // [ranks], after the last step
};
Model model(int ranks, int steps, double ratio, const MakeGradient& gradient, size_t parameter) {
  const auto n = static_cast<size_t>(gradient(0, 0, parameter).numel());
  const auto k = static_cast<size_t>(std::ceil(ratio * static_cast<double>(n)));
  Model result{
      {}, std::vector<std::vector<double>>(static_cast<size_t>(ranks), std::vector<double>(n))};
  for (int step = 0; step < steps; ++step) {
    std::vector<double> sum(n);
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<double>& rest = result.residuals[static_cast<size_t>(rank)];
      const at::Tensor mine = gradient(step, rank, parameter).reshape(-1).contiguous();
      for (size_t e = 0; e < n; ++e) rest[e] += mine.data_ptr<double>()[e];
      std::vector<size_t> order(n);
      std::iota(order.begin(), order.end(), size_t{0});
      std::ranges::stable_sort(order, std::greater{}, [&](size_t e) { return std::abs(rest[e]); });
      for (size_t i = 0; i < k; ++i) {
        sum[order[i]] += rest[order[i]];
        rest[order[i]] = 0;
      }
    }
    result.sums.push_back(std::move(sum));
  }
  return result;
}

at::Tensor tensor_of(const std::vector<double>& values, at::IntArrayRef shape) {
  return at::tensor(values, at::kDouble).view(shape);
}

TEST(TopKHook, HasTheBitsOfItsDefinition) {
  constexpr int kSteps = 4;
  for (const double ratio : {0.01, 0.3}) {
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(concat(ranks, " ranks, ratio ", ratio));
      const HookRun run = run_hook(ranks, top_k(ratio), waves(at::kDouble), {.steps = kSteps});
      for (size_t i = 0; i < shapes().size(); ++i) {
        const Model expected = model(ranks, kSteps, ratio, waves(at::kDouble), i);
        for (size_t step = 0; step < kSteps; ++step) {
          harness::assert_same_bits(run.sums[step][i], tensor_of(expected.sums[step], shapes()[i]),
                                    concat(name_of(i), " in step ", step));
        }
        for (size_t r = 0; r < expected.residuals.size(); ++r) {
          harness::assert_same_bits(run.states.back()[r].at("error." + name_of(i)),
                                    tensor_of(expected.residuals[r], shapes()[i]),
                                    concat("residual of ", name_of(i)));
        }
      }
    }
  }
}

TEST(TopKHook, AtRatioOneItIsThePlainSum) {
  const HookRun run = run_hook(3, top_k(1), waves(at::kFloat));
  for (int step = 0; step < 3; ++step) {
    expect_same_bits({run.sums[static_cast<size_t>(step)]},
                     {plain_sums(3, waves(at::kFloat), step)});
  }
}

TEST(TopKHook, SentAndResidualAreAllThereWas) {
  expect_error_feedback_keeps_everything(top_k(0.05));
}

TEST(TopKHook, BucketsAndAResumeChangeNoBit) {
  expect_bucketing_and_resume_change_no_bit(top_k(0.05), at::kFloat);
  expect_bucketing_and_resume_change_no_bit(top_k(0.05), at::kBFloat16);
}

TEST(TopKHook, PutsValuesAndPlacesOnTheWire) {
  int64_t num_sent = 0;
  for (const auto& shape : shapes()) num_sent += (at::zeros(shape).numel() + 19) / 20;
  for (const auto& [dtype, width] : {std::pair{at::kFloat, 4}, std::pair{at::kBFloat16, 2}}) {
    for (const int ranks : {1, 2, 3, 4}) {
      const HookRun run = run_hook(ranks, top_k(0.05), waves(dtype));
      for (const int64_t num_bytes : run.bytes) {
        EXPECT_EQ(num_bytes, (ranks - 1) * num_sent * (4 + width));
      }
    }
  }
}

TEST(TopKHook, ANanIsSentAndThenForgotten) {
  const MakeGradient gradient = [](int step, int rank, size_t parameter) {
    at::Tensor result = waves(at::kFloat)(step, rank, parameter);
    if (step == 0 && rank == 1 && parameter == 0) result.fill_(NAN);
    return result;
  };
  const HookRun run = run_hook(2, top_k(0.05), gradient);
  EXPECT_TRUE(run.sums[0][0].isnan().any().item<bool>());
  EXPECT_TRUE(run.sums[1][0].isfinite().all().item<bool>());
}

TEST(TopKHook, RatiosOutOfRangeAreRefused) {
  for (const double ratio : {0.0, -0.1, 1.1, double{NAN}}) {
    EXPECT_THROW(TopKHook{ratio}, ConfigError) << ratio;
  }
}

}  // namespace
}  // namespace trireme::parallel
