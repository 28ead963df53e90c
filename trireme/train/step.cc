#include "trireme/train/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/process_stat.h"
#include "trireme/base/seconds.h"
#include "trireme/comm/recorder/step_recording.h"
#include "trireme/train/numerics/batch_scaling.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/numerics/learning_rate.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/run/device.h"

namespace trireme::train::inline internal {
namespace {

using Clock = std::chrono::steady_clock;
using Batches = std::vector<dataset::Batch>;

// The numbers that ranks exchange at the end of a step.
struct Report {
  double communication_seconds = 0;
  double step_seconds = 0;
  double peak_rss = 0;
  double leave = 0;
  double microbatch_squares = 0;  // see DistributedDataParallel
  double data_seconds = 0;
  double peak_device_bytes = 0;
};

// Returns the sum of all ranks' microbatch_squares.
double add_reports(comm::Communicator& world, const Report& mine, StepResult& result) {
  constexpr size_t kNumbers = 7;
  const std::vector<double> all =
      gather(world, {mine.communication_seconds, mine.step_seconds, mine.peak_rss, mine.leave,
                     mine.microbatch_squares, mine.data_seconds, mine.peak_device_bytes});
  double squares = 0;
  double communication = 0, device_bytes = 0;
  StepMetrics& metrics = result.metrics;
  for (size_t at = 0; at < all.size(); at += kNumbers) {
    const Report report{all[at],     all[at + 1], all[at + 2], all[at + 3],
                        all[at + 4], all[at + 5], all[at + 6]};
    metrics.step_seconds = std::max(metrics.step_seconds, report.step_seconds);
    metrics.data_seconds = std::max(metrics.data_seconds, report.data_seconds);
    communication = std::max(communication, report.communication_seconds / report.step_seconds);
    device_bytes = std::max(device_bytes, report.peak_device_bytes);
    metrics.peak_rss_bytes =
        std::max(metrics.peak_rss_bytes, static_cast<int64_t>(report.peak_rss));
    result.leave = std::max(result.leave, static_cast<Leave>(report.leave));
    squares += report.microbatch_squares;
  }
  metrics.communication_fraction = communication;
  if (device_bytes > 0) metrics.peak_device_bytes = static_cast<int64_t>(device_bytes);
  return squares;
}

// Whether the optimizer may use the step's gradients. Every rank has the same numbers and makes the
// same decision, before the weights change.
bool accept(StepContext& context, const StepMetrics& metrics, std::span<const double> squares) {
  const bool is_finite = std::isfinite(metrics.loss) && std::isfinite(metrics.grad_norm);
  const bool may_retry = context.loss_scale.may_retry();
  if (!context.loss_scale.update(is_finite) && may_retry && std::isfinite(metrics.loss)) {
    return false;
  }
  if (context.bad_steps.accept(metrics.loss, metrics.grad_norm)) return true;
  if (context.bad_steps.may_skip()) return false;
  const std::string parameter = first_nonfinite_gradient(context.model.gradient_names(), squares);
  const std::string clip =
      context.config.train.gradient_clip > 0 ? "" : "set train.gradient_clip, ";
  throw ConfigError(concat(
      "step ", metrics.step, ": ", context.bad_steps.describe(metrics.loss, metrics.grad_norm),
      parameter.empty() ? "" : "; first gradient that is not finite: ", parameter,
      "; lower optimizer.learning_rate, lengthen optimizer.warmup_steps, ", clip,
      "or let train.skip_bad_steps leave such steps out"));
}

// squares: over every microbatch's gradient, each divided by the count of the whole batch.
void measure_noise(StepContext& context, double squares, StepMetrics& metrics) {
  const TrainConfig& train = context.config.train;
  if (!train.measure_noise) return;
  const auto batch = static_cast<double>(train.global_batch);
  const auto micro_batch = static_cast<double>(train.micro_batch);
  // With K microbatches, each mean gradient is K times what it added: K^2 squares / K.
  if (!metrics.skipped) {
    context.noise.add({micro_batch, batch / micro_batch * squares},
                      {batch, metrics.grad_norm * metrics.grad_norm});
  }
  metrics.noise_scale = context.noise.batch();
}

}  // namespace

double scheduled_rate(const RunConfig& config, int64_t step) {
  const OptimizerConfig& optimizer = config.optimizer;
  const double peak = scaled_learning_rate(optimizer.learning_rate, optimizer.batch_scaling,
                                           config.train.global_batch, optimizer.base_batch);
  return learning_rate({.schedule = optimizer.schedule,
                        .peak = peak,
                        .minimum = optimizer.minimum_learning_rate,
                        .warmup_steps = optimizer.warmup_steps,
                        .decay_fraction = optimizer.decay_fraction},
                       step, config.train.steps);
}

std::vector<MetricValue> finish_metrics(const Task& task, std::span<const double> sums) {
  std::vector<MetricValue> values;
  size_t begin = 1;
  for (const Metric& metric : task.metrics()) {
    values.emplace_back(metric.name, metric.finish(sums.subspan(begin, metric.size)));
    begin += static_cast<size_t>(metric.size);
  }
  return values;
}

// Reads the next step's microbatches ahead for tables, whose ids then travel during this step.
void announce_next(StepContext& context, int64_t step) {
  const RunConfig& config = context.config;
  const bool can_replace = config.data.skip_bad_samples > 0;  // counted in the step that reads them
  if (!config.task->has_tables() || can_replace || step >= config.train.steps) return;
  context.model.announce(context.batches.peek(step));
}

Leave agree(comm::Communicator& world, const AskLeave& ask) {
  const std::vector<double> all = gather(world, {static_cast<double>(ask())});
  return static_cast<Leave>(std::ranges::max(all));
}

StepResult run_step(StepContext& context, int64_t step, const AskLeave& ask) {
  StepScope scope(context.profiler, step);
  comm::StepRecording recording(context.recorder, step);
  const auto start = Clock::now();
  const RunConfig& config = context.config;
  StepResult result;
  StepMetrics& metrics = result.metrics;
  metrics.step = step;

  ParallelModel& model = context.model;
  const dataset::BatchLoader& loader = context.batches.loader();
  const Batches batches = context.bad_samples.read(model.mesh().world(), context.batches, step - 1,
                                                   0, loader.num_microbatches());
  metrics.bad_samples = context.bad_samples.count();
  result.finding = context.bad_samples.take_finding();
  announce_next(context, step);
  scope.enter(Phase::kForwardBackward);
  const auto count = static_cast<double>(model.begin_step(batches));
  const std::vector<double> sums = model.forward_backward(batches, context.loss_scale.scale());
  scope.enter(Phase::kNorm);
  const std::vector<double> all = model.sums_over_batches(sums);
  metrics.loss = all[0] / count;
  metrics.others = finish_metrics(*config.task, all);
  const double scale = 1 / context.loss_scale.scale();
  const std::vector<double> squares = model.gradient_squares();
  metrics.grad_norm = gradient_norm(squares) * scale;
  metrics.learning_rate = scheduled_rate(config, step);
  metrics.counts = model.sum_counts();
  if (context.on_gradients) context.on_gradients(metrics, scale);
  scope.enter(Phase::kOptimizer);
  metrics.skipped = !accept(context, metrics, squares);
  if (!metrics.skipped) {
    const double clip = clip_factor(metrics.grad_norm, config.train.gradient_clip);
    context.optimizer.step(metrics.learning_rate, clip * scale);
    model.tables().step(metrics.learning_rate, clip * scale);
    model.use_counts(metrics.counts);
  } else {
    model.undo_statistics();
    model.tables().discard_gradients();
  }
  model.end_step();
  metrics.gradient_bytes = model.gradient_bytes();

  // Before the exchange, in which a fast rank waits for the slow ones.
  recording.finish(model.communication_time());
  scope.enter(Phase::kExchange);
  const double microbatch_squares = add_reports(
      model.mesh().world(),
      {.communication_seconds = in_seconds(model.communication_time()),
       .step_seconds = in_seconds(Clock::now() - start),
       .peak_rss = static_cast<double>(peak_resident_bytes()),
       .leave = static_cast<double>(ask()),
       .microbatch_squares = model.microbatch_squares() * scale * scale,
       .data_seconds = in_seconds(context.batches.take_waiting()),
       .peak_device_bytes = static_cast<double>(peak_device_bytes(config.device).value_or(0))},
      result);
  if (!config.device.is_cpu()) metrics.communication_fraction.reset();
  measure_noise(context, microbatch_squares, metrics);
  const Throughput throughput = config.task->throughput();
  const auto samples_per_second =
      static_cast<double>(loader.step_size(step - 1)) / metrics.step_seconds;
  metrics.unit = throughput.unit;
  metrics.units_per_second = samples_per_second * static_cast<double>(throughput.per_sample);
  const double peak = config.peak_flops * model.mesh().world().size();
  if (peak * throughput.flops > 0) metrics.mfu = samples_per_second * throughput.flops / peak;
  return result;
}

std::optional<Evaluation> evaluate(const RunConfig& config, ParallelModel& model,
                                   dataset::BatchReader& batches,
                                   const std::function<bool()>& is_cut) {
  // Enough to keep a pipeline mostly full, but few enough that a request to stop is served soon.
  const int64_t at_once = int64_t{16} * model.mesh().size("pipeline");
  BadSamples bad_samples(config.data.skip_bad_samples);
  std::vector<double> sums, counts;
  model.begin_evaluation();
  const int64_t num_microbatches = batches.loader().num_microbatches();
  for (int64_t begin = 0; begin < num_microbatches; begin += at_once) {
    if (begin > 0 && is_cut()) return std::nullopt;
    const int64_t end = std::min(begin + at_once, num_microbatches);
    const Batches loaded = bad_samples.read(model.mesh().world(), batches, 0, begin, end);
    std::ranges::copy(model.evaluate(loaded), std::back_inserter(sums));
    std::ranges::copy(model.num_terms(loaded), std::back_inserter(counts));
  }
  const std::vector<double> all = model.sums_over_batches(std::move(sums));
  std::vector<MetricValue> others = finish_metrics(*config.task, all);
  const std::vector<std::string> names = config.task->evaluation_metrics();
  const std::vector<double> values = model.finish_evaluation();
  TRIREME_ASSERT(names.size() == values.size(), "evaluation metrics: ", values.size(),
                 " values for ", names.size(), " names");
  for (size_t i = 0; i < names.size(); ++i) others.emplace_back(names[i], values[i]);
  return Evaluation{.loss = all[0] / model.sum_over_batches(std::move(counts)),
                    .others = std::move(others),
                    .finding = bad_samples.take_finding()};
}

}  // namespace trireme::train::inline internal
