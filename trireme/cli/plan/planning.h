// What `trireme simulate` and `trireme plan` have in common: their files, and the words of their
// reports.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "trireme/plan/device/cluster.h"
#include "trireme/plan/step/step.h"
#include "trireme/train/config/config.h"

namespace trireme::cli::inline internal {

// A run and a cluster as two files and overrides describe them.
struct PlanningCase {
  train::RunConfig config;  // as read, not resolved
  plan::Cluster cluster;
};

// Overrides of the sections [cluster], [device], [network], [price] and [failures] are the
// cluster's, all others the run's. The model's vocabulary is known afterwards: from
// model.vocab_size, or from the tokenizer of the data.
// Throws: ConfigError, also for another task than language
PlanningCase load_case(const std::string& config, const std::string& cluster,
                       const std::vector<std::string>& overrides);

// The same for any task, without a look at the vocabulary.
PlanningCase load_files(const std::string& config, const std::string& cluster,
                        const std::vector<std::string>& overrides);
// Makes the vocabulary of a loaded model known.
// Throws: ConfigError
void find_vocabulary(train::RunConfig& config);

// What the whole run takes, failures and saves included.
struct RunForecast {
  double days = 0;
  double device_hours = 0;
  double goodput = 1;
  double checkpoint_interval_seconds = 0;  // the best one by Daly; 0: as often as one likes
  double kilowatt_hours = 0;
  double cost = 0;  // 0: no price is given
  double failures = 0;
};
RunForecast forecast(const plan::StepPrediction& step, const plan::Cluster& cluster, int64_t steps);

// "8 nodes of 8 h100-sxm".
std::string describe(const plan::Cluster& cluster);
nlohmann::json to_json(const plan::StepPrediction& step);
nlohmann::json to_json(const RunForecast& run);
// Lines for people: seconds by cause with bars, and memory by use.
std::string show(const plan::StepPrediction& step);
std::string show(const RunForecast& run, int64_t steps);
}  // namespace trireme::cli::inline internal
