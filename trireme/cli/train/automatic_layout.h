// The cost model in a run: parallel.auto lets the planner choose the layout, and other keys that
// are "auto" their own values. After training the step times are compared with its prediction.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/cli/plan/measured_steps.h"
#include "trireme/cli/train/memory_table.h"
#include "trireme/comm/communicator.h"
#include "trireme/plan/step/step_prediction.h"
#include "trireme/train/config/config.h"
#include "trireme/train/trainer.h"

namespace trireme::cli {

struct AutomaticLayout {
  train::RunConfig config;  // without has_choices()
  std::string line{};       // for the user: what was chosen, and why
};

// A run that has begun in output.folder keeps what was chosen if it had as many ranks. Otherwise
// the planner's best for the ranks of `group`, which measure themselves for a few seconds unless
// parallel.cluster describes them.
// Collective: every rank of `group`. The same layout on all of them
// Throws:     ConfigError on every rank when none fits
AutomaticLayout choose_layout(const train::RunConfig& config, comm::Communicator& group);

// A layout that the config's checks can be made with before there are ranks; a config without
// has_choices() as it is.
// Throws: ConfigError when there is none
train::RunConfig with_any_layout(const train::RunConfig& config, int num_ranks);

// Rank 0's record of the run while it trains.
class RunRecord {
 public:
  // Call before anything large is allocated.
  RunRecord();
  // Writes what is predicted before the first step into the run's folder.
  // config: resolved, its data open.
  void begin(const train::RunConfig& config);
  void add(const train::StepMetrics& metrics);

  // Whether the cost model knows the model and there are enough steps.
  bool is_comparable() const;
  double total_seconds() const { return total_seconds_; }
  // Lines for the user: the memory by kind that the planner expects, "" when it cannot; and what
  // the run has had, "" when it was not counted.
  std::string planned_memory() const;
  std::string measured_memory() const;
  double resident_at_start() const { return resident_at_start_; }
  // The lines for the user. Writes the prediction into the run's folder.
  // Throws: ConfigError when the cluster cannot be used
  std::string compare_with(const train::RunConfig& config, const plan::Cluster& cluster) const;

 private:
  std::optional<BytesByKind> plan_memory(const train::RunConfig& config) const;
  std::optional<double> planned_seconds(const train::RunConfig& config) const;
  plan::StepPrediction prediction_on(const plan::Cluster& cluster) const;

  train::OffloadConfig offload_;
  std::optional<plan::Workload> work_;
  plan::StageLayout layout_;
  int64_t learners_ = 1;
  std::vector<StepSample> samples_;
  std::optional<BytesByKind> planned_memory_;
  std::optional<BytesByKind> memory_;  // of the last step
  double total_seconds_ = 0;
  double resident_at_start_;
};

// The lines for the user on rank 0, "" when nothing can be said; "" on other ranks. Ranks that no
// file describes measure themselves after a run of 20 s or longer, for a few seconds, and stop
// measuring without a line when any rank's `stop` says so.
// Collective: every rank of `group`
std::string compare_with_prediction(const train::RunConfig& config, const RunRecord& record,
                                    comm::Communicator& group,
                                    const std::function<bool()>& stop = nullptr);

}  // namespace trireme::cli
