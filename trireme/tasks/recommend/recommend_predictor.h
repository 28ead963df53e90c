// A trained recommendation model's answers to rows: the probability of a click, or of each class,
// or how well the item of a row fits its query.
#pragma once

#include <memory>

#include "trireme/tasks/recommend/recommend.h"
#include "trireme/tasks/recommend/recommend_problem.h"
#include "trireme/train/task/predictor.h"

namespace trireme::tasks {

// The problem of a run whose tables ranks share to answer rows.
// Throws: ConfigError when the features do not fit the config
RecommendProblem answering_problem(const train::PredictRequest& request,
                                   const RecommendConfig& config);

// config: the task's. Reads features.json of the run's folder, and the dictionary of its data.
// Memory: the tables, whatever tables.memory is, without optimizer states
// Throws: as PredictingTask::make_predictor()
std::unique_ptr<train::Predictor> make_recommend_predictor(const train::PredictRequest& request,
                                                           const RecommendConfig& config);

}  // namespace trireme::tasks
