// The learning rate: a pure function of its options, the step and the batch size.
#pragma once

#include <cstdint>

#include "trireme/base/choice.h"

namespace trireme::train {

// After the warm-up.
enum class RateSchedule { kConstant, kLinear, kCosine, kWarmupStableDecay };
inline constexpr Choice<RateSchedule> kRateSchedules[] = {
    {"constant", RateSchedule::kConstant},
    {"linear", RateSchedule::kLinear},
    {"cosine", RateSchedule::kCosine},
    {"warmup-stable-decay", RateSchedule::kWarmupStableDecay}};

struct LearningRateOptions {
  RateSchedule schedule = RateSchedule::kCosine;
  double peak = 1e-3;
  double minimum = 0;           // at the end of the schedule, one step after the last
  int64_t warmup_steps = 20;    // of linear rise from 0
  double decay_fraction = 0.2;  // kWarmupStableDecay: share of the steps that decay
};

// The rate of `step`, which counts from 1 to `num_steps`. kLinear and kCosine fall from the peak in
// the last step of the warm-up, or in the first without one, so that a step after the last would
// have the minimum. kWarmupStableDecay holds the peak, and falls like kLinear over the last
// decay_fraction of the steps.
// Source: cosine: Loshchilov & Hutter 2017, arXiv:1608.03983; warmup-stable-decay: Hu et al. 2024,
//         arXiv:2404.06395, section 4
double learning_rate(const LearningRateOptions& options, int64_t step, int64_t num_steps);

enum class BatchScaling { kNone, kLinear, kSquareRoot };
inline constexpr Choice<BatchScaling> kBatchScalings[] = {
    {"none", BatchScaling::kNone},
    {"linear", BatchScaling::kLinear},
    {"square-root", BatchScaling::kSquareRoot}};

// `rate` times r = batch / base_batch (kLinear), sqrt(r) (kSquareRoot) or 1 (kNone). Both batches
// are in sequences.
// Source: linear: Goyal et al. 2017, arXiv:1706.02677; square root: Krizhevsky 2014,
//         arXiv:1404.5997, and for LAMB You et al. 2020, arXiv:1904.00962
double scaled_learning_rate(double rate, BatchScaling scaling, int64_t batch, int64_t base_batch);

}  // namespace trireme::train
