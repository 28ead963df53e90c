// The alerts of `trireme watch` while a run trains, so that they are in its events whether or not
// somebody watches: on rank 0.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/launch/journal/event.h"
#include "trireme/train/metrics/metric_table.h"
#include "trireme/watch/read/metric_line.h"
#include "trireme/watch/run/alerts.h"

namespace trireme::cli {

// Not thread safe. Never throws.
class RunAlerts {
 public:
  static constexpr int kMostEvents = 1000;  // of a start; further alerts are left out

  // epoch: as the run's other events have it
  RunAlerts(std::filesystem::path run_folder, int64_t epoch);

  // Looks at a step, writes an event "notice" with the cause "alert" for each new alert, and
  // returns a line for each: "alert   spike: the loss rose to 4.1, ...".
  std::vector<std::string> add(const train::StepMetrics& metrics);

 private:
  std::vector<watch::Alert> find_alerts(const train::StepMetrics& metrics);

  const std::filesystem::path run_folder_;
  const int64_t epoch_;
  const std::optional<FileIdentity> identity_;  // of the folder
  const int64_t machine_bytes_;
  launch::EventWriter events_;
  watch::MetricLine line_;
  watch::AlertScan scan_;
  std::chrono::steady_clock::time_point next_look_{};  // at the disk
  bool is_disk_full_ = false;
  bool is_memory_full_ = false;
  int num_events_ = 0;
};

}  // namespace trireme::cli
