// Shared parts of `trireme simulate` and `trireme plan`: reading their files and wording their
// reports.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/cli/plan/cluster_file.h"
#include "trireme/plan/step/learner_prediction.h"
#include "trireme/plan/step/step_prediction.h"
#include "trireme/train/config/config.h"

namespace trireme::cli {

// load_files() of trireme's own tasks. The model's vocabulary is known afterwards: from
// model.vocab_size, or from the tokenizer of the data.
// Throws: ConfigError, also for another task than language
PlanningCase load_case(const std::string& config, const std::string& cluster,
                       const std::vector<std::string>& overrides);

// Makes known what a loaded config leaves to its data: the vocabulary, the steps of train.epochs.
// Throws: ConfigError
void find_data_sizes(train::RunConfig& config);

// Forecast for the whole run, including failures and saves.
struct RunForecast {
  double days = 0;
  double device_hours = 0;
  double goodput = 1;
  double checkpoint_interval_seconds = 0;  // the optimum by Daly; 0: any interval
  double kilowatt_hours = 0;
  double cost = 0;  // 0: no price is given
  double failures = 0;
};
RunForecast forecast(const plan::StepPrediction& step, const plan::Cluster& cluster, int64_t steps);

// "8 nodes of 8 h100-sxm".
std::string describe(const plan::Cluster& cluster);
nlohmann::json to_json(const plan::StepPrediction& step);
nlohmann::json to_json(const RunForecast& run);
// config: of the run, for its [outer]
nlohmann::json to_json(const plan::LearnerPrediction& prediction, const train::RunConfig& config);
// Lines for people: seconds by cause with bars, and memory by use.
std::string show(const plan::StepPrediction& step);
std::string show(const plan::LearnerPrediction& prediction, const train::RunConfig& config);
std::string show(const RunForecast& run, int64_t steps);
// "12.3 days, 18.9 k device-hours, 19 k kWh, cost 37.7 k".
std::string describe(const RunForecast& run);

}  // namespace trireme::cli
