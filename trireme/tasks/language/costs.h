// A run of a language model in the words of the cost model (trireme/plan), and its layers' costs.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {

// One step of a resolved config, with the model's vocabulary known.
plan::Workload workload_of(const train::RunConfig& config, const LanguageConfig& own);

inline namespace internal {

// As plan::layer_costs().
std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config,
                                             const LanguageConfig& own);

}  // namespace internal
}  // namespace trireme::tasks
