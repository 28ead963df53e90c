// The learning rate of a step: a pure function of the config and the step's number.
#pragma once

#include <cstdint>

#include "trireme/train/config.h"

namespace trireme::train {

// `step` counts from 1 to `num_steps`. Rises linearly to the peak over warmup_steps, then follows
// the schedule: constant; linear or cosine to the minimum at num_steps; warmup-stable-decay holds
// the peak and falls linearly to the minimum over the last decay_fraction of the steps.
// Source: cosine: Loshchilov & Hutter 2017, arXiv:1608.03983; warmup-stable-decay: Hu et al. 2024,
//         arXiv:2404.06395, section 4
double learning_rate(const OptimizerConfig& config, int64_t step, int64_t num_steps);

}  // namespace trireme::train
