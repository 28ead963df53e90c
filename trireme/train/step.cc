#include "trireme/train/step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/numerics/learning_rate.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/run/compute_device.h"
#include "trireme/train/run/counted_memory.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;
using Batches = std::vector<dataset::Batch>;

// Beside the metrics, what ranks exchange at the end of a step.
struct Exchange {
  Leave leave = Leave::kNo;       // the largest counts
  double microbatch_squares = 0;  // see DistributedDataParallel; all ranks' sum
  std::vector<double> others{};   // of RankNumbers, as many on every rank
  std::optional<RankRow> ranks{};
};

// The row of the series from what the ranks have said: `all`, `width` numbers of each.
RankRow row_of_ranks(RankNumbers& numbers, int64_t step, std::span<const MetricKind* const> kinds,
                     std::span<const double> all, size_t width) {
  std::vector<RankNumbers::Said> said;
  for (size_t at = 0; at < all.size(); at += width) {
    StepMetrics metrics;
    for (size_t i = 0; i < kinds.size(); ++i) {
      const double value = all[at + 2 + i];
      set_value(*kinds[i], std::isnan(value) ? std::nullopt : std::optional(value), metrics);
    }
    said.push_back(
        {std::move(metrics), all.subspan(at + 2 + kinds.size(), width - 2 - kinds.size())});
  }
  return numbers.row(step, said);
}

// Replaces this rank's values of the metrics that differ by rank, and `mine`, by those of all.
// ranks: null: nobody wants the row of the series
Exchange exchange(comm::Communicator& world, const Exchange& mine, RankNumbers* ranks,
                  StepMetrics& metrics) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::vector<const MetricKind*> kinds;
  for (const MetricKind& kind : metric_kinds()) {
    if (kind.across == Across::kMax) kinds.push_back(&kind);
  }
  std::vector<double> numbers{static_cast<double>(mine.leave), mine.microbatch_squares};
  for (const MetricKind* const kind : kinds) {
    numbers.push_back(value_of(*kind, metrics).value_or(kNone));
  }
  numbers.insert(numbers.end(), mine.others.begin(), mine.others.end());
  const size_t width = numbers.size();
  const std::vector<double> all = gather(world, std::move(numbers));
  Exchange result;
  std::vector<std::optional<double>> largest(kinds.size());
  for (size_t at = 0; at < all.size(); at += width) {
    result.leave = std::max(result.leave, static_cast<Leave>(all[at]));
    result.microbatch_squares += all[at + 1];
    for (size_t i = 0; i < kinds.size(); ++i) {
      const double value = all[at + 2 + i];
      if (!std::isnan(value)) largest[i] = std::max(largest[i].value_or(value), value);
    }
  }
  for (size_t i = 0; i < kinds.size(); ++i) set_value(*kinds[i], largest[i], metrics);
  if (ranks != nullptr && world.rank() == 0) {
    result.ranks = row_of_ranks(*ranks, metrics.step, kinds, all, width);
  }
  return result;
}

// What `of_part` gives for each part, one after the other.
template <typename T>
std::vector<T> of_parts(const StepContext& context, std::vector<T> (StepPart::*of_part)() const) {
  std::vector<T> all;
  for (const StepPart* const part : context.parts) {
    std::ranges::move((part->*of_part)(), std::back_inserter(all));
  }
  return all;
}

[[noreturn]] void refuse(const StepContext& context, const StepMetrics& metrics,
                         std::span<const double> squares) {
  const UpdateStrategy& updates = context.updates;
  std::string text = concat("step ", metrics.step);
  if (updates.is_alone()) text += concat(" of rank ", updates.trainers().rank());
  text += updates.norm_factor()
              ? concat(": ", context.bad_steps.describe(metrics.loss, metrics.grad_norm))
              : concat(": the loss is ", metrics.loss);
  const std::string parameter =
      first_nonfinite_gradient(of_parts<std::string>(context, &StepPart::gradient_names), squares);
  if (!parameter.empty()) text += "; first gradient that is not finite: " + parameter;
  text += "; lower optimizer.learning_rate, lengthen optimizer.warmup_steps";
  if (updates.root_saves()) throw ConfigError(text);  // which refuses all else
  if (context.config.train.gradient_clip == 0) text += ", set train.gradient_clip";
  throw ConfigError(text + ", or let train.skip_bad_steps leave such steps out");
}

// Whether the optimizer may use the step's gradients. Every rank has the same numbers and makes the
// same decision, before the weights change.
bool accept(StepContext& context, const StepMetrics& metrics, std::span<const double> squares) {
  const double grad_norm = context.updates.norm_factor() ? metrics.grad_norm : 0;  // unknown
  const bool is_finite = std::isfinite(metrics.loss) && std::isfinite(grad_norm);
  const bool may_retry = context.loss_scale.may_retry();
  if (!context.loss_scale.update(is_finite) && may_retry && std::isfinite(metrics.loss)) {
    return false;
  }
  if (context.bad_steps.accept(metrics.loss, grad_norm)) return true;
  if (context.bad_steps.may_skip()) return false;
  refuse(context, metrics, squares);
}

// What this rank has spent on a step.
void measure(StepContext& context, std::chrono::nanoseconds took, std::chrono::nanoseconds waited,
             StepMetrics& metrics) {
  const at::Device device = context.config.device;
  metrics.step_seconds = in_seconds(took);
  metrics.data_seconds = in_seconds(context.batches.take_waiting());
  metrics.communication_fraction.reset();
  if (device.is_cpu()) metrics.communication_fraction = in_seconds(waited) / metrics.step_seconds;
  if (const auto waited_for_teacher = context.model.teacher_waiting())
    metrics.teacher_wait_seconds = in_seconds(*waited_for_teacher);
  metrics.peak_rss_bytes = static_cast<int64_t>(peak_resident_bytes());
  metrics.peak_device_bytes = peak_device_bytes(device);
  if (device.is_cpu()) set_memory(context.memory.use().at_peak, metrics);
}

// What this rank says of itself for the series; nothing when nobody wants it.
std::vector<double> own_numbers(StepContext& context, int64_t step, std::chrono::nanoseconds waited,
                                const Batches& batches) {
  if (context.numbers == nullptr) return {};
  int64_t samples = 0;
  for (const dataset::Batch& batch : batches) samples += batch.size();
  return context.numbers->mine(step,
                               {.waited = waited,
                                .communication = context.model.communication_by_axis(),
                                .units = samples * context.config.task->traits().units_per_sample});
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

// The learning rate of step number `step` by the config's schedule.
double scheduled_rate(const RunConfig& config, int64_t step) {
  const OptimizerConfig& optimizer = config.optimizer;
  const double peak = scaled_learning_rate(optimizer.learning_rate, optimizer.batch_scaling,
                                           config.batch_sizes().of(step - 1), optimizer.base_batch);
  return learning_rate({.schedule = optimizer.schedule,
                        .peak = peak,
                        .minimum = optimizer.minimum_learning_rate,
                        .warmup_steps = optimizer.warmup_steps,
                        .decay_fraction = optimizer.decay_fraction},
                       step, config.train.steps);
}

// The metrics of a task. sums: the loss, then the states of the metrics.
std::vector<MetricValue> finish_metrics(const Task& task, std::span<const double> sums) {
  std::vector<MetricValue> values;
  size_t begin = 1;
  for (const Metric& metric : task.traits().metrics) {
    values.emplace_back(metric.name, metric.finish(sums.subspan(begin, metric.size)));
    begin += static_cast<size_t>(metric.size);
  }
  return values;
}

// Sets what `samples` samples in step_seconds on so many devices make: units per second, and with a
// known peak the MFU.
void set_throughput(const RunConfig& config, const ModelTraits& model, int64_t samples,
                    int num_devices, StepMetrics& metrics) {
  const TaskTraits task = config.task->traits();
  const double samples_per_second = static_cast<double>(samples) / metrics.step_seconds;
  metrics.unit = task.unit;
  metrics.units_per_second = samples_per_second * static_cast<double>(task.units_per_sample);
  const double peak = config.peak_flops * num_devices;
  if (peak * model.flops_per_sample > 0) {
    metrics.mfu = samples_per_second * model.flops_per_sample / peak;
  }
}

// Reads the next step's microbatches ahead for tables, whose ids then travel during this step, and
// for a teacher on other ranks, which then reads them during this step.
void announce_next(StepContext& context, int64_t step) {
  const RunConfig& config = context.config;
  const bool can_replace = config.data.skip_bad_samples > 0;  // counted in the step that reads them
  const bool is_wanted = config.task->traits().has_tables || config.remote_teacher;
  if (!is_wanted || can_replace || step >= config.train.steps) return;
  context.model.announce(context.batches.peek(step));
}

}  // namespace

StepResult run_step(StepContext& context, int64_t step, const AskLeave& ask) {
  StepScope scope(context.profiler, step);
  comm::StepRecording recording(context.recorder, step);
  const auto start = Clock::now();
  const RunConfig& config = context.config;
  StepResult result;
  StepMetrics& metrics = result.metrics;
  metrics.step = step;

  ParallelModel& model = context.model;
  UpdateStrategy& updates = context.updates;
  const dataset::BatchLoader& loader = context.batches.loader();
  updates.begin_step(step);
  const Batches batches = context.bad_samples.read(model.mesh().world(), context.batches, step - 1,
                                                   0, loader.num_microbatches(step - 1));
  metrics.bad_samples = context.bad_samples.count();
  result.finding = context.bad_samples.take_finding();
  announce_next(context, step);
  scope.enter(Phase::kForwardBackward);
  updates.await_weights();
  const auto count = static_cast<double>(updates.count_terms(model, model.begin_step(batches)));
  const std::vector<double> sums = model.forward_backward(batches, context.loss_scale.scale());
  updates.end_backward();
  scope.enter(Phase::kNorm);
  const std::vector<double> all = updates.sums_over_batches(model, sums, batches.size());
  metrics.loss = all[0] / count;
  metrics.others = finish_metrics(*config.task, all);
  const double scale = 1 / context.loss_scale.scale();
  const std::vector<double> squares = of_parts<double>(context, &StepPart::gradient_squares);
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = gradient_norm(squares) * scale * updates.norm_factor().value_or(unknown);
  metrics.learning_rate = scheduled_rate(config, step);
  metrics.counts = model.sum_counts();
  if (context.on_gradients) context.on_gradients(metrics, scale);
  scope.enter(Phase::kOptimizer);
  metrics.skipped = !accept(context, metrics, squares);
  if (!metrics.skipped) {
    const double clip =
        context.may_clip ? clip_factor(metrics.grad_norm, config.train.gradient_clip) : 1;
    for (StepPart* const part : context.parts) part->step(metrics.learning_rate, clip * scale);
    model.use_counts(metrics.counts);
  } else {
    model.undo_statistics();
    for (StepPart* const part : context.parts) part->discard_gradients();
  }
  updates.end_step();
  model.end_step();
  metrics.gradient_bytes = updates.gradient_bytes(model);
  updates.add_metrics(metrics);

  // Before the exchange, in which a fast rank waits for the slow ones.
  const std::chrono::nanoseconds waited = model.communication_time() + updates.waited();
  recording.finish(waited);
  scope.enter(Phase::kExchange);
  const std::chrono::nanoseconds took = Clock::now() - start;
  result.worked_seconds = in_seconds(took - waited);
  measure(context, took, waited, metrics);
  Exchange found = exchange(updates.peers(),
                            {.leave = ask(),
                             .microbatch_squares = model.microbatch_squares() * scale * scale,
                             .others = own_numbers(context, step, waited, batches)},
                            context.numbers, metrics);
  result.leave = updates.settle(found.leave);
  result.ranks = std::move(found.ranks);
  measure_noise(context, found.microbatch_squares, metrics);
  set_throughput(config, model.traits(), loader.step_size(step - 1), updates.num_devices(),
                 metrics);
  return result;
}

namespace {

// This rank's terms of one set of validation data.
struct Evaluated {
  std::vector<double> sums{};  // of losses and metrics, by microbatch
  std::vector<double> counts{};
};

std::optional<Evaluated> evaluate_set(ParallelModel& model, dataset::BatchReader& batches,
                                      BadSamples& bad_samples,
                                      const std::function<bool()>& is_cut) {
  // Enough to keep a pipeline mostly full, but few enough that a request to stop is served soon.
  const int64_t at_once = int64_t{16} * model.mesh().size("pipeline");
  Evaluated found;
  const int64_t num_microbatches = batches.loader().num_microbatches(0);
  for (int64_t begin = 0; begin < num_microbatches; begin += at_once) {
    if (begin > 0 && is_cut()) return std::nullopt;
    const int64_t end = std::min(begin + at_once, num_microbatches);
    const Batches loaded = bad_samples.read(model.mesh().world(), batches, 0, begin, end);
    std::ranges::copy(model.evaluate(loaded), std::back_inserter(found.sums));
    std::ranges::copy(model.num_terms(loaded), std::back_inserter(found.counts));
  }
  return found;
}

}  // namespace

std::optional<Evaluation> evaluate(const RunConfig& config, ParallelModel& model,
                                   std::list<ValidationBatches>& sets,
                                   const std::function<bool()>& is_cut) {
  TRIREME_ASSERT(!sets.empty(), "an evaluation without data");
  BadSamples bad_samples(config.data.skip_bad_samples);
  std::vector<double> all;
  double count = 0;
  std::vector<MetricValue> losses;
  model.begin_evaluation();
  for (ValidationBatches& set : sets) {
    if (&set != &sets.front() && is_cut()) return std::nullopt;
    std::optional<Evaluated> found = evaluate_set(model, set.reader, bad_samples, is_cut);
    if (!found) return std::nullopt;
    const std::vector<double> sums = model.sums_over_batches(std::move(found->sums));
    const double terms = model.sum_over_batches(std::move(found->counts));
    TRIREME_CHECK(terms > 0, "the evaluation's losses", set.name.empty() ? "" : " of ", set.name,
                  " sum over 0 terms; expected at least one target that is not ignored: raise "
                  "train.evaluate_sequences, or give other validation data");
    if (!set.name.empty()) losses.emplace_back("loss." + set.name, sums[0] / terms);
    all.resize(sums.size());
    for (size_t i = 0; i < sums.size(); ++i) all[i] += sums[i];
    count += terms;
  }
  std::vector<MetricValue> others = finish_metrics(*config.task, all);
  const std::vector<std::string> names = config.task->traits().evaluation_metrics;
  const std::vector<double> values = model.finish_evaluation();
  TRIREME_ASSERT(names.size() == values.size(), "evaluation metrics: ", values.size(),
                 " values for ", names.size(), " names");
  for (size_t i = 0; i < names.size(); ++i) others.emplace_back(names[i], values[i]);
  losses.insert(losses.end(), others.begin(), others.end());
  return Evaluation{
      .loss = all[0] / count, .others = std::move(losses), .finding = bad_samples.take_finding()};
}

}  // namespace trireme::train
