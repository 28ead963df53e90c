// A pipeline stage of a language model with the loss of its objective.
#pragma once

#include <memory>
#include <span>
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

// Tokens go to every stage, for their number, positions and documents. A tied head's weight comes
// from the embedding's stage, and its gradient goes back there.
train::StageEdges edges_of_stage(const LanguageConfig& config, int stage,
                                 std::span<const model::ModelPart> stages);

// The edge of a tensor that enters stage `stage`.
std::string carried_edge(const model::CarriedTensor& tensor, int stage);

// cross_entropy, of the targets, and divergence, the Kullback-Leibler divergence from the teacher
// to the student at the temperature: means over targets, in nats.
std::vector<train::Metric> distillation_metrics();

// accuracy: the share of the texts whose largest logit is that of their label.
std::vector<train::Metric> classification_metrics();

}  // namespace trireme::tasks
