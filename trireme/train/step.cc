#include "trireme/train/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <sys/resource.h>

#include "trireme/base/error.h"
#include "trireme/train/learning_rate.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;
using Batches = std::vector<dataset::Batch>;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// This rank's microbatches of a step whose number counts from 0.
Batches load_microbatches(const dataset::BatchLoader& loader, int64_t step) {
  Batches batches;
  for (int64_t i = 0; i < loader.num_microbatches(); ++i) {
    batches.push_back(loader.microbatch(step, i));
  }
  return batches;
}

int64_t count_targets(const Batches& batches) {
  int64_t count = 0;
  for (const dataset::Batch& batch : batches) {
    count += batch.targets_BT.ne(model::kIgnoredTarget).sum().item<int64_t>();
  }
  return count;
}

// Forward and backward of every microbatch; gradients are reduced when it returns. This rank's
// summed loss, in double.
double forward_backward(StepContext& context, const Batches& batches) {
  double sum = 0;
  for (const dataset::Batch& batch : batches) {
    const model::Loss loss = context.model.loss(batch.tokens_BT, batch.targets_BT);
    context.ddp.backward(loss.sum);
    sum += loss.sum.item<double>();
  }
  return sum;
}

int64_t peak_rss_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

// What the ranks tell each other at the end of a step.
struct Report {
  double loss_sum = 0;
  double count = 0;  // terms of loss_sum
  double communication_seconds = 0;
  double step_seconds = 0;
  double peak_rss = 0;
  double stop = 0;
};

// Every rank's report, in rank order.
std::vector<Report> exchange(comm::Communicator& world, const Report& mine) {
  constexpr int64_t kNumbers = sizeof(Report) / sizeof(double);
  std::vector<Report> reports(world.size());
  std::vector<at::Tensor> outputs;
  for (Report& report : reports) outputs.push_back(at::from_blob(&report, {kNumbers}, at::kDouble));
  Report input = mine;
  world.all_gather(outputs, at::from_blob(&input, {kNumbers}, at::kDouble))->wait();
  return reports;
}

StepMetrics summarize(const std::vector<Report>& reports, int64_t count, int64_t num_tokens) {
  StepMetrics metrics;
  double loss_sum = 0;
  for (const Report& report : reports) {
    loss_sum += report.loss_sum;
    metrics.step_seconds = std::max(metrics.step_seconds, report.step_seconds);
    metrics.communication_fraction = std::max(metrics.communication_fraction,
                                              report.communication_seconds / report.step_seconds);
    metrics.peak_rss_bytes =
        std::max(metrics.peak_rss_bytes, static_cast<int64_t>(report.peak_rss));
  }
  metrics.loss = loss_sum / static_cast<double>(count);
  metrics.tokens_per_second = static_cast<double>(num_tokens) / metrics.step_seconds;
  return metrics;
}

// `loss` is this rank's mean. A NaN in one rank's loss is in every rank's summed gradient, so that
// all throw together, before the weights change.
void check_finite(const StepContext& context, int64_t step, double loss, double norm) {
  if (std::isfinite(loss) && std::isfinite(norm)) return;
  const std::string parameter = first_nonfinite_gradient(context.parameters);
  throw ConfigError(
      concat("step ", step, ": loss is ", loss, " and gradient norm is ", norm,
             parameter.empty() ? "" : "; first gradient that is not finite: ", parameter,
             "; lower optimizer.learning_rate, lengthen optimizer.warmup_steps or set "
             "train.gradient_clip"));
}

}  // namespace

StepResult run_step(StepContext& context, int64_t step, bool stop_requested) {
  StepScope scope(context.profiler, step);
  const auto start = Clock::now();
  const RunConfig& config = context.config;

  const Batches batches = load_microbatches(context.batches, step - 1);
  const int64_t count = count_targets(batches);
  scope.enter(Phase::kForwardBackward);
  const int64_t global_count = context.ddp.begin_step(count, std::ssize(batches));
  const double loss_sum = forward_backward(context, batches);
  scope.enter(Phase::kNorm);
  const double norm = gradient_norm(context.parameters);
  check_finite(context, step, loss_sum / static_cast<double>(std::max<int64_t>(1, count)), norm);
  clip_gradients(context.parameters, norm, config.train.gradient_clip);
  scope.enter(Phase::kOptimizer);
  const double rate = learning_rate(config.optimizer, step, config.train.steps);
  context.optimizer.step(rate);

  scope.enter(Phase::kExchange);
  const std::vector<Report> reports =
      exchange(context.world, {.loss_sum = loss_sum,
                               .communication_seconds = seconds(context.ddp.communication_time()),
                               .step_seconds = seconds(Clock::now() - start),
                               .peak_rss = static_cast<double>(peak_rss_bytes()),
                               .stop = stop_requested ? 1.0 : 0.0});
  const int64_t num_tokens = config.train.global_batch * config.model.sequence_length;
  StepResult result{summarize(reports, global_count, num_tokens), false};
  result.metrics.step = step;
  result.metrics.grad_norm = norm;
  result.metrics.learning_rate = rate;
  result.stop = std::ranges::any_of(reports, [](const Report& report) { return report.stop != 0; });
  return result;
}

double evaluate(model::LanguageModel& model, const dataset::BatchLoader& batches,
                comm::Communicator& world) {
  const c10::NoGradGuard no_grad;
  Report mine;
  for (const dataset::Batch& batch : load_microbatches(batches, 0)) {
    const model::Loss loss = model.loss(batch.tokens_BT, batch.targets_BT);
    mine.loss_sum += loss.sum.item<double>();
    mine.count += static_cast<double>(loss.count);
  }
  double sum = 0;
  double count = 0;
  for (const Report& report : exchange(world, mine)) {
    sum += report.loss_sum;
    count += report.count;
  }
  return sum / count;
}

}  // namespace trireme::train
