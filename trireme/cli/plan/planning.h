// What `trireme simulate` and `trireme plan` have in common: their files, and the words of their
// reports.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

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
// Throws: ConfigError
PlanningCase load_case(const std::string& config, const std::string& cluster,
                       const std::vector<std::string>& overrides);

// The run on all devices of the cluster, checked by the runtime's own rules.
// Throws: ConfigError when it cannot run there
plan::Workload resolve_on(train::RunConfig& config, int64_t num_devices);
// Its pipeline's stages, as the runtime divides them.
plan::StageLayout runtime_stages(const train::RunConfig& config);

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

// What a run's metrics.jsonl says of its steps: medians, without the first three.
struct MeasuredSteps {
  int64_t num_steps = 0;
  double step_seconds = 0;
  double communication_seconds = 0;
  double peak_bytes = 0;
};
// Throws: ConfigError when there is no such file or it has fewer than four steps
MeasuredSteps read_steps(const std::string& run);
// Predicted beside measured, and which part of the step differs most.
std::string compare(const plan::StepPrediction& step, const MeasuredSteps& measured);
nlohmann::json to_json(const MeasuredSteps& measured);

// "8 nodes of 8 h100-sxm".
std::string describe(const plan::Cluster& cluster);
nlohmann::json to_json(const plan::StepPrediction& step);
nlohmann::json to_json(const RunForecast& run);
// Lines for people: seconds by cause with bars, and memory by use.
std::string show(const plan::StepPrediction& step);
std::string show(const RunForecast& run, int64_t steps);
// The keys of a CLUSTER file, for --help.
std::string describe_cluster_keys();
// The content of a CLUSTER file that says `file`.
std::string cluster_toml(plan::ClusterFile& file);

}  // namespace trireme::cli::inline internal
