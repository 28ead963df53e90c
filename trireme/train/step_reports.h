// What the user of a run is told: finished steps on rank 0, in files and on the console, and whom
// ranks wait for.
#pragma once

#include <chrono>
#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/train/callbacks/callbacks.h"
#include "trireme/train/metrics/metrics.h"
#include "trireme/train/observer.h"

namespace trireme::train {

inline checkpoint::OnWait tell(TrainObserver& observer) {
  return [&observer](std::span<const int> ranks, std::chrono::milliseconds waited) {
    observer.on_wait(ranks, in_seconds(waited));
  };
}

inline OnCallbackWait tell_of_callbacks(TrainObserver& observer) {
  return [&observer](const std::string& callback, std::span<const int> ranks,
                     std::chrono::milliseconds waited) {
    observer.on_callback_wait(callback, ranks, in_seconds(waited));
  };
}

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

}  // namespace trireme::train
