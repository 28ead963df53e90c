// Tells rank 0's files and user of finished steps.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "trireme/train/metrics/metrics.h"
#include "trireme/train/trainer.h"

namespace trireme::train::inline internal {

// Not thread safe.
class StepReports {
 public:
  // `observer` must outlive it.
  explicit StepReports(TrainObserver& observer) : observer_(observer) {}

  // Writes the step's line, then tells the user of the step, of metrics that are undefined for the
  // first time, and the findings.
  void report(const StepMetrics& metrics, MetricsWriter& writer,
              std::initializer_list<std::optional<std::string>> findings);

 private:
  TrainObserver& observer_;
  std::set<std::string> undefined_;  // metrics of which the user knows it
};

}  // namespace trireme::train::inline internal
