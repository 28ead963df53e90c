// The run at an MLflow server while it trains (`tracking.mlflow`): on rank 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/train/config/config.h"
#include "trireme/train/metrics/metric_table.h"
#include "trireme/train/observer.h"
#include "trireme/train/tracking/mlflow_feed.h"

namespace trireme::cli {

// What a server gets of a run besides its metrics, from its folder.
// num_ranks: 0: unknown
train::MlflowStart mlflow_start(const std::filesystem::path& run_folder,
                                const train::TrackingConfig& config, int64_t num_ranks);

// The value of an environment variable of this process; nullptr when it is not set.
const char* own_variable(const char* name);

// The state of a run that goes on with other ranks, in MLflow's words.
inline constexpr const char* kGoesOn = "RUNNING";
// That of a run that has ended so.
std::string mlflow_status(train::Outcome outcome);

// Not thread safe. A run without tracking.mlflow has one that does nothing.
class RunTracking {
 public:
  // tell: shows a line to the user
  explicit RunTracking(std::function<void(const std::string& line)> tell)
      : tell_(std::move(tell)) {}
  // A run that has not ended by finish() has failed.
  ~RunTracking();
  RunTracking(const RunTracking&) = delete;
  RunTracking& operator=(const RunTracking&) = delete;

  // Throws: ConfigError for a secret in the environment that no header can hold
  void start(const train::RunConfig& config, const train::RunSummary& summary);
  void add(const train::StepMetrics& metrics);
  // Sends what waits, for at most 10 s, and 2 s when the run goes on or the server does not answer.
  void finish(const std::string& status);

 private:
  void end(const std::string& status, std::chrono::milliseconds patience);

  std::function<void(const std::string& line)> tell_;
  std::unique_ptr<train::MlflowFeed> feed_;
};

}  // namespace trireme::cli
