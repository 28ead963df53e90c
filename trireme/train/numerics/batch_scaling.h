// The learning rate for a batch size that differs from the one it was tuned for.
#pragma once

#include <cstdint>

#include "trireme/base/choice.h"

namespace trireme::train {

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
