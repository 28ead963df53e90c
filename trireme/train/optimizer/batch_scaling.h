// The peak learning rate for a batch of another size than the one it was tuned at.
#pragma once

#include <cstdint>

#include "trireme/train/config.h"

namespace trireme::train {

// config.learning_rate times r = global_batch / config.base_batch ("linear"), sqrt(r)
// ("square-root") or 1 ("none"). Sequences.
// Source: linear: Goyal et al. 2017, arXiv:1706.02677; square root: Krizhevsky 2014,
//         arXiv:1404.5997, and for LAMB You et al. 2020, arXiv:1904.00962
double peak_learning_rate(const OptimizerConfig& config, int64_t global_batch);

}  // namespace trireme::train
