// A trained recommendation model's answers to rows: the probability of a click, or of each class.
#pragma once

#include <memory>

#include "trireme/tasks/recommend/recommend.h"
#include "trireme/train/task/predictor.h"

namespace trireme::tasks {

// config: the task's. Reads features.json of the run's folder, and the dictionary of its data.
// Memory: the tables and their optimizer states, whatever tables.memory is
// Throws: as PredictingTask::make_predictor(); ConfigError for two-tower, which ranks items
std::unique_ptr<train::Predictor> make_recommend_predictor(const train::PredictRequest& request,
                                                           const RecommendConfig& config);

}  // namespace trireme::tasks
