#include "trireme/parallel/data/compression/feedback_hooks.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/parallel/data/compression/hook_runs.h"

namespace trireme::parallel {
namespace {

using namespace testing;

std::shared_ptr<GradientHook> rule() { return std::make_shared<TopKHook>(0.05); }
std::shared_ptr<GradientHook> warm_rule() { return std::make_shared<WarmUpHook>(rule(), 2); }

TEST(WarmUpHook, ComesBeforeTheRuleAsIfTheRuleStartedThen) {
  const MakeGradient gradient = waves(at::kFloat);
  const MakeGradient later = [&](int step, int rank, size_t parameter) {
    return gradient(step + 2, rank, parameter);
  };
  const HookRun run = run_hook(3, warm_rule, gradient, {.steps = 4});
  const HookRun alone = run_hook(3, rule, later, {.steps = 2});
  expect_same_bits(run.sums, {plain_sums(3, gradient, 0), plain_sums(3, gradient, 1), alone.sums[0],
                              alone.sums[1]});
  EXPECT_EQ(run.bytes, alone.bytes);
}

TEST(WarmUpHook, BucketsAndAResumeChangeNoBit) {
  expect_bucketing_and_resume_change_no_bit(warm_rule, at::kFloat);
}

TEST(WarmUpHook, StateHoldsItsCountAndTheRules) {
  const HookRun run = run_hook(1, warm_rule, waves(at::kFloat), {.steps = 3});
  EXPECT_EQ(run.states[0][0].at("warm_up_steps_left").item<int64_t>(), 1);
  EXPECT_EQ(run.states[2][0].at("warm_up_steps_left").item<int64_t>(), 0);
  EXPECT_TRUE(run.states[0][0].contains("error.p0"));
}

}  // namespace
}  // namespace trireme::parallel
