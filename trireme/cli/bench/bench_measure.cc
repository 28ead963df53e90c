#include "trireme/cli/bench/bench_measure.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/median.h"
#include "trireme/base/seconds.h"

namespace trireme::cli::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatchSeconds = 20e-6;
constexpr int64_t kMaxBatch = 1000;
constexpr int64_t kMinBatches = 5;
constexpr int64_t kMaxBatches = 20000;
constexpr double kWarmUpShare = 0.2;  // of the budget

// The largest value of all ranks, so that all make the same decision.
double largest(comm::Communicator& group, double value) {
  const at::Tensor shared = at::full({1}, value, at::kDouble);
  group.all_reduce(shared, {.operation = comm::ReduceOp::kMax})->wait();
  return shared.item<double>();
}

// Doubles the number of runs until they have used their share of the budget. Returns the seconds
// per operation in the last batch, on the slowest rank.
double warm_up(comm::Communicator& group, const std::function<void()>& operation, double seconds) {
  for (int64_t count = 1;; count *= 2) {
    group.barrier()->wait();
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < count; ++i) operation();
    const double elapsed = largest(group, seconds_since(start));
    if (elapsed > seconds / 2) return elapsed / static_cast<double>(count);
  }
}

}  // namespace

BatchPlan plan_batches(double operation_seconds, double budget_seconds) {
  const double one = std::max(operation_seconds, 1e-9);
  BatchPlan plan;
  plan.batch = std::clamp<int64_t>(std::llround(std::ceil(kBatchSeconds / one)), 1, kMaxBatch);
  const double batch_seconds = one * static_cast<double>(plan.batch);
  plan.num_batches = std::clamp<int64_t>(
      std::llround(std::min(1e9, budget_seconds / batch_seconds)), kMinBatches, kMaxBatches);
  return plan;
}

Timing summarize(std::vector<double> microseconds) {
  TRIREME_ASSERT(!microseconds.empty(), "no times");
  std::ranges::sort(microseconds);
  const size_t count = microseconds.size();
  const auto rank = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(count)));
  return {median(microseconds), microseconds[std::max<size_t>(rank, 1) - 1]};
}

Timing measure(comm::Communicator& group, const std::function<void()>& operation,
               double budget_seconds) {
  const double one = warm_up(group, operation, kWarmUpShare * budget_seconds);
  const BatchPlan plan = plan_batches(one, (1 - kWarmUpShare) * budget_seconds);
  std::vector<double> times(static_cast<size_t>(plan.num_batches));
  for (double& microseconds : times) {
    group.barrier()->wait();
    const Clock::time_point start = Clock::now();
    for (int64_t i = 0; i < plan.batch; ++i) operation();
    microseconds = 1e6 * seconds_since(start) / static_cast<double>(plan.batch);
  }
  const at::Tensor slowest = at::from_blob(times.data(), {plan.num_batches}, at::kDouble);
  group.all_reduce(slowest, {.operation = comm::ReduceOp::kMax})->wait();
  return summarize(times);
}

}  // namespace trireme::cli::inline internal
