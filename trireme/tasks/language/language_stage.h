// A pipeline stage of a language model with the loss of its objective.
#pragma once

#include <memory>
#include <vector>

#include "trireme/tasks/language/language.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

// config: of the task, which outlives the stage
// Throws: as model::make_model()
std::unique_ptr<train::StageModel> make_language_stage(const LanguageConfig& config,
                                                       const train::StageRequest& request);

// cross_entropy, of the targets, and divergence, the Kullback-Leibler divergence from the teacher
// to the student at the temperature: means over targets, in nats.
std::vector<train::Metric> distillation_metrics();

}  // namespace trireme::tasks
