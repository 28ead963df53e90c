// A config in the words of the cost model (trireme/plan): the part that is the same for every
// model. A task adds its layers (Task::layer_costs()). Allocates nothing.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>

#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/train/config/config.h"

namespace trireme::train {

// Bytes of an element of weights and activations.
double itemsize(const RunConfig& config);
// Bytes of an element of what is computed in fp32 at least.
double wide_itemsize(const RunConfig& config);

// Bytes of what the run keeps for a parameter. The optimizer's states are those of a matrix
// [width, width].
plan::NumberSizes number_sizes(const RunConfig& config, int64_t width);
// The names of those that the run does not train, by the plan or train.freeze.
// Throws: ConfigError when a pattern matches none, or nothing is left to train
std::set<std::string> frozen_parameters(const RunConfig& config,
                                        std::span<const model::ParameterPlan> parameters);
// The share of the elements of these parameters that the run trains.
double trained_share(const RunConfig& config, std::span<const model::ParameterPlan> parameters);
// Bytes that a parameter is kept in, which its format may decide.
double kept_bytes(const RunConfig& config, const model::ParameterPlan& parameter);
// Bytes that their weights are kept in, over those in the run's dtype.
double kept_share(const RunConfig& config, std::span<const model::ParameterPlan> parameters);
plan::Axes plan_axes(const ParallelConfig& parallel);

// Bytes of weights, gradients and optimizer states per parameter in a rank's part of the model,
// which ZeRO divides over the data and context ranks.
double state_bytes_per_parameter(const RunConfig& config, int64_t width);

// parallel.stage_memory, which must be set, as a limit for each stage of `schedule`, given the
// number of microbatches that the stage holds at one time.
parallel::SplitOptions split_options(const RunConfig& config, const parallel::Schedule& schedule);

}  // namespace trireme::train
