// A pipeline stage of a language model with the loss of its objective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/model/family/parts.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

// config: of the task, which outlives the stage
// Throws: as model::make_model()
std::unique_ptr<train::StageModel> make_language_stage(const LanguageConfig& config,
                                                       const train::StageRequest& request);

// The edge of a tensor that enters stage `stage`.
std::string carried_edge(const model::CarriedTensor& tensor, int stage);

// cross_entropy, of the targets, and divergence, the Kullback-Leibler divergence from the teacher
// to the student at the temperature: means over targets, in nats.
std::vector<train::Metric> distillation_metrics();

}  // namespace trireme::tasks
