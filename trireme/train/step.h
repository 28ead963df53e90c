// Runs one step: microbatches, forward, backward with gradients reduced behind it, norm, clip,
// updates, metrics. Each part is one function, in that order.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/machine/memory_ledger.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/dataset/batch_reader.h"
#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/numerics/bad_steps.h"
#include "trireme/train/numerics/gradient_noise.h"
#include "trireme/train/numerics/loss_scale.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/profile/profiler.h"
#include "trireme/train/run/bad_samples.h"
#include "trireme/train/run/rank_numbers.h"
#include "trireme/train/state/step_part.h"
#include "trireme/train/update_strategy.h"

namespace trireme::train {

// The objects that a step works on. All of them must outlive the step.
struct StepContext {
  const RunConfig& config;
  ParallelModel& model;
  UpdateStrategy& updates;
  std::span<StepPart* const> parts;
  LossScale& loss_scale;
  BadSteps& bad_steps;
  GradientNoise& noise;
  BadSamples& bad_samples;
  dataset::BatchReader& batches;
  const MemoryLedger& memory;  // of this rank
  Profiler* profiler = nullptr;
  comm::Recorder* recorder = nullptr;  // of the step and what it waited for
  RankNumbers* numbers = nullptr;      // for the series of ranks; null: nobody wants them
  bool may_clip = true;                // false: the optimizer gets no gradients but their momentum
  // Called between the norm and the optimizer, with what the step's metrics hold by then and the
  // factor that undoes the loss scale. Empty: nobody wants it.
  std::function<void(const StepMetrics& metrics, double gradient_factor)> on_gradients{};
};

struct StepResult {
  StepMetrics metrics;
  Leave leave = Leave::kNo;              // of all ranks, asked after the weights have changed
  std::optional<std::string> finding{};  // about the step's samples
  double worked_seconds = 0;             // of this rank, without what it waited for others; on CPUs
  std::optional<RankRow> ranks{};        // on the first rank of those that meet, if wanted
};

// Runs step number `step`, from 1. If a request to stop reaches any rank meanwhile, the run ends
// after this step.
// Comm:       gradients and weights (see DistributedDataParallel), the norm's sums, and from each
//             rank 8 bytes per microbatch and 120 more all-gathered; for the series of ranks 24
//             more, 8 for each axis with communication, and 128 in every 16th step, in the same
//             exchange; see also BadSamples::read()
// Collective: every rank of the world
// Throws:     ConfigError when the loss or a gradient is NaN or infinite and the step may not be
//             skipped, with the step and the parameter
StepResult run_step(StepContext& context, int64_t step, const AskLeave& ask);

// Validation data: all microbatches of step 0.
struct ValidationBatches {
  ValidationBatches(std::string set_name, const dataset::Source& source,
                    const dataset::BatchOptions& batches,
                    const dataset::BatchReaderOptions& options)
      : name(std::move(set_name)), reader(source, batches, options) {}

  std::string name;
  dataset::BatchReader reader;
};

struct Evaluation {
  double loss = 0;                       // mean over all data
  std::vector<MetricValue> others{};     // the loss of each set with a name, the task's metrics
  std::optional<std::string> finding{};  // about its samples
};

// Evaluates all data, at least one set of it, without gradients. Losses and metrics are means over
// the terms of all; "loss.<name>" is that of one set. Calls `is_cut` now and then, which must
// answer the same on every rank. Empty if it has returned true. Each evaluation counts its bad
// samples anew.
// Comm:       16 bytes per microbatch from each rank all-gathered; with ZeRO-3 the weights of each
//             unit and microbatch gathered
// Collective: every rank of the world
std::optional<Evaluation> evaluate(const RunConfig& config, ParallelModel& model,
                                   std::list<ValidationBatches>& sets,
                                   const std::function<bool()>& is_cut);

}  // namespace trireme::train
