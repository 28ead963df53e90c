// What a pipeline's stages cost in memory: the part that is the same for every model. A task adds
// its layers (Task::layer_costs()). Estimated from the config only; allocates nothing.
#pragma once

#include <cstdint>

#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// Bytes of an element of weights and activations.
double itemsize(const RunConfig& config);
// Bytes of an element of what is computed in fp32 at least.
double wide_itemsize(const RunConfig& config);

// The ranks over which ZeRO divides states: of the data and context ranks, and of those that hold
// the same experts.
int64_t sharing_ranks(const ParallelConfig& parallel);
int64_t ranks_sharing_experts(const ParallelConfig& parallel);

// Bytes of weights, gradients and optimizer states per parameter in a rank's part of the model,
// which ZeRO divides over `ranks`. The optimizer's states are those of a matrix [width, width].
// Source: Rajbhandari et al. 2020, arXiv:1910.02054, section 3
double state_bytes_per_parameter(const RunConfig& config, int64_t width, int64_t ranks);
inline double state_bytes_per_parameter(const RunConfig& config, int64_t width) {
  return state_bytes_per_parameter(config, width, sharing_ranks(config.parallel));
}

// parallel.stage_memory, which must be set, as a limit for each stage of `schedule`, given the
// number of microbatches that the stage holds at one time.
parallel::SplitOptions split_options(const RunConfig& config, const parallel::Schedule& schedule);

}  // namespace trireme::train
