// The learning rate: a pure function of its options and the step's number.
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
  double minimum = 0;           // at the end of the schedule
  int64_t warmup_steps = 20;    // of linear rise from 0
  double decay_fraction = 0.2;  // kWarmupStableDecay: share of the steps that decay
};

// The rate of `step`, which counts from 1 to `num_steps`. kLinear and kCosine fall to the minimum
// at num_steps. kWarmupStableDecay holds the peak, and falls linearly over the last decay_fraction
// of the steps.
// Source: cosine: Loshchilov & Hutter 2017, arXiv:1608.03983; warmup-stable-decay: Hu et al. 2024,
//         arXiv:2404.06395, section 4
double learning_rate(const LearningRateOptions& options, int64_t step, int64_t num_steps);

}  // namespace trireme::train
