// What a worker of ServedRun does in a step.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/process_stat.h"
#include "trireme/base/seconds.h"
#include "trireme/comm/objects.h"
#include "trireme/train/numerics/gradient_norm.h"
#include "trireme/train/numerics/loss_sum.h"
#include "trireme/train/run/batches.h"
#include "trireme/train/served_run.h"
#include "trireme/train/server/served_model.h"
#include "trireme/train/trainer_impl.h"

namespace trireme::train::inline internal {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// Begins to pull the weights before the next step. With host_sums, waits for them.
void ServedRun::pull(const std::vector<at::Tensor>& weights) {
  const int64_t step = step_ - first_step_ + 1;
  if (host_sums_) return host_sums_->pull(step, weights);
  client_->pull(step, weights);
}

Leave ServedRun::train_step(const std::function<bool()>& stop) {
  const auto start = Clock::now();
  ParallelModel& model = state_.model();
  std::vector<at::Tensor> weights;
  for (const parallel::Shard* const shard : trained_shards(model.shards())) {
    weights.push_back(shard->weights.detach());
  }
  pull(weights);
  const std::vector<dataset::Batch> batches =
      state_.bad_samples().read(*self_, *batches_, step_, 0, batches_->loader().num_microbatches());
  if (!host_sums_) client_->wait_all_pulled();
  const double pull_seconds = seconds_since(start);
  const int64_t own_count = model.begin_step(batches);
  int64_t count = own_count * servers_.num_workers();
  if (is_synchronous()) {
    count = 0;
    for (const int64_t each : comm::all_gather_numbers(servers_.role(), own_count)) count += each;
  }
  model.use_global_count(count);
  std::vector<double> sums = model.forward_backward(batches, 1);
  StepMetrics metrics{.step = step_ + 1, .learning_rate = scheduled_rate(config_, step_ + 1)};
  const auto push_start = Clock::now();
  push(metrics.learning_rate, metrics);
  const double waited = pull_seconds + seconds_since(push_start);
  const auto width = sums.size() / batches.size();
  sums = is_synchronous() ? sums_over_batches(*workers_, 0, std::move(sums), width)
                          : model.sums_over_batches(std::move(sums));
  metrics.step_seconds = seconds_since(start);
  metrics.data_seconds = in_seconds(batches_->take_waiting());
  metrics.communication_fraction = std::min(1.0, waited / metrics.step_seconds);
  ++step_;
  Leave why = leave(stop);
  if (is_synchronous()) why = static_cast<Leave>(meet_all(why).leave);
  if (host_) why = agree(*host_, [why] { return why; });  // a host's ranks leave together
  report(std::move(metrics), sums, static_cast<double>(is_synchronous() ? count : own_count));
  return why;
}

void ServedRun::push(double learning_rate, StepMetrics& metrics) {
  metrics.grad_norm = std::numeric_limits<double>::quiet_NaN();
  double clip = 1;
  if (!is_synchronous()) {
    const std::vector<double> squares = state_.model().gradient_squares();
    // The norm for the mean over this worker's samples.
    metrics.grad_norm = gradient_norm(squares) * servers_.num_workers();
    TRIREME_CHECK(std::isfinite(metrics.grad_norm), "step ", metrics.step, ", worker ",
                  world_.rank(), ": a gradient is not finite, first that of ",
                  first_nonfinite_gradient(state_.model().gradient_names(), squares),
                  "; lower optimizer.learning_rate");
    clip = clip_factor(metrics.grad_norm, config_.train.gradient_clip);
    for (const parallel::Shard& shard : state_.model().shards()) {
      if (clip != 1 && shard.gradient.defined()) shard.gradient.mul_(clip);
    }
  }
  held_.clear();
  for (const parallel::Shard* const shard : trained_shards(state_.model().shards())) {
    const at::Tensor gradient =
        shard->gradient.defined() ? shard->gradient : at::zeros_like(shard->weights);
    held_.push_back(gradient.contiguous());
  }
  const int64_t step = step_ - first_step_ + 1;
  const int64_t sent = client_ ? client_->counts().sent_bytes : 0;
  if (host_sums_) {
    host_sums_->push(step, held_, learning_rate);
  } else {
    int64_t index = 0;
    for (const at::Tensor& gradient : held_) client_->push(step, index++, gradient, learning_rate);
    state_.model().tables().step(learning_rate, clip);
    client_->wait_pushed();
  }
  if (client_) metrics.gradient_bytes = client_->counts().sent_bytes - sent;
}

// sums: over the step's samples, or over this worker's part of them; the loss comes first
void ServedRun::report(StepMetrics metrics, const std::vector<double>& sums, double count) {
  metrics.loss = sums[0] / count;
  TRIREME_CHECK(std::isfinite(metrics.loss), "step ", metrics.step, ": the loss is ", metrics.loss,
                "; lower optimizer.learning_rate, or lengthen optimizer.warmup_steps");
  if (!is_root()) return;
  metrics.others = finish_metrics(*config_.task, sums);
  metrics.peak_rss_bytes = static_cast<int64_t>(peak_resident_bytes());
  const Throughput throughput = config_.task->throughput();
  metrics.unit = throughput.unit;
  metrics.units_per_second =
      static_cast<double>(batches_->loader().step_size(step_ - 1) * throughput.per_sample) /
      metrics.step_seconds;
  saves_.add_metrics(metrics);
  reports_.report(metrics, output_->metrics(), {});
}

}  // namespace trireme::train::inline internal
