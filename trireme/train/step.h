// The life of one step: microbatches, forward, backward with gradients reduced behind it, norm,
// clip, optimizer, metrics. One function an arrow, in that order.
#pragma once

#include <cstdint>

#include "trireme/dataset/batch_loader.h"
#include "trireme/train/bad_steps.h"
#include "trireme/train/config.h"
#include "trireme/train/loss_scale.h"
#include "trireme/train/metrics.h"
#include "trireme/train/optimizer/gradient_noise.h"
#include "trireme/train/optimizer/optimizer.h"
#include "trireme/train/parallel/parallel_model.h"
#include "trireme/train/profile/profiler.h"

namespace trireme::train {

// What a step works on; all of it outlives the step.
struct StepContext {
  const RunConfig& config;
  ParallelModel& model;
  Optimizer& optimizer;
  LossScale& loss_scale;
  BadSteps& bad_steps;
  GradientNoise& noise;
  const dataset::BatchLoader& batches;
  Profiler* profiler = nullptr;
};

struct StepResult {
  StepMetrics metrics;
  bool stop = false;  // some rank was asked to stop: all leave after this step
};

// Step number `step`, from 1. `stop_requested`: this rank was asked to stop.
// Comm:       gradients and weights (see DistributedDataParallel), the norm's sums, and of each
//             rank 8 bytes a microbatch and 40 more all-gathered
// Collective: every rank of the world
// Throws:     ConfigError when the loss or a gradient is NaN or infinite and the step may not be
//             skipped: step and parameter
StepResult run_step(StepContext& context, int64_t step, bool stop_requested);

// Mean loss over all microbatches of step 0 of `batches`, without gradients.
// Comm:       16 bytes a microbatch of each rank all-gathered; with ZeRO-3 the weights of each unit
//             and microbatch gathered
// Collective: every rank of the world
double evaluate(ParallelModel& model, const dataset::BatchLoader& batches);

}  // namespace trireme::train
