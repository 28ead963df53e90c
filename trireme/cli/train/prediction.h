// After training: what the steps took beside what the cost model predicts of them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/cli/plan/measured_steps.h"
#include "trireme/comm/communicator.h"
#include "trireme/plan/step/step.h"
#include "trireme/train/trainer.h"

namespace trireme::cli::inline internal {

// What rank 0 learns of the run while it trains.
class RunRecord {
 public:
  // Call before anything large is allocated.
  RunRecord();
  // config: resolved, its data open.
  void begin(const train::RunConfig& config);
  void add(const train::StepMetrics& metrics);

  // Whether the cost model knows the model and there are enough steps.
  bool is_comparable() const;
  double total_seconds() const { return total_seconds_; }
  double resident_at_start() const { return resident_at_start_; }
  // The lines for the user.
  // Throws: ConfigError when the cluster cannot be used
  std::string compare_with(const plan::Cluster& cluster) const;

 private:
  std::optional<plan::Workload> work_;
  plan::StageLayout layout_;
  std::vector<StepSample> samples_;
  double total_seconds_ = 0;
  double resident_at_start_;
};

// The lines for the user on rank 0, "" when nothing can be said; "" on other ranks. Ranks that no
// file describes measure themselves after a run of 20 s or longer, for a few seconds.
// Collective: every rank of `group`
std::string compare_with_prediction(const train::RunConfig& config, const RunRecord& record,
                                    comm::Communicator& group);

}  // namespace trireme::cli::inline internal
