// One run's folder as `trireme watch` sees it: everything is read, nothing is written, and the run
// may be alive, dead, growing, damaged or gone.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/comm/recorder/diagnosis.h"
#include "trireme/launch/journal/event.h"
#include "trireme/watch/read/metric_line.h"
#include "trireme/watch/read/tail.h"
#include "trireme/watch/run/alerts.h"
#include "trireme/watch/run/goodput.h"
#include "trireme/watch/run/paced.h"
#include "trireme/watch/run/run_config.h"
#include "trireme/watch/run/run_state.h"
#include "trireme/watch/series/metric_columns.h"
#include "trireme/watch/series/series_view.h"

namespace trireme::watch {

// The flight recorder of a run, and what it says is wrong.
struct Observation {
  std::vector<comm::ObservedRank> ranks{};  // empty: there is none that can be read
  std::vector<comm::Finding> findings{};
};

struct SavedCheckpoint {
  int64_t step = 0;
  double time = 0;  // seconds since 1970
};

// Not thread safe.
class WatchedRun {
 public:
  // Does not look at the folder yet.
  explicit WatchedRun(std::filesystem::path folder);

  // Reads what is new, for about `patience`. Returns whether there is more at once. Never throws
  // for what is in the folder.
  bool update(std::chrono::milliseconds patience);

  const std::filesystem::path& folder() const { return folder_; }
  // The folder's own name.
  std::string name() const;
  const MetricColumns& metrics() const { return metrics_; }
  const SeriesView& series() const { return series_; }
  // Lines of metrics.jsonl that were left out.
  int64_t num_unreadable() const { return num_unreadable_ + tail_.num_too_long(); }

  // These look at the folder when it is time to.
  const RunConfig& config();
  const launch::EventLog& events();
  const Observation& observation();
  const StateVerdict& verdict();
  const Goodput& goodput();
  const std::vector<Alert>& alerts();
  const std::vector<SavedCheckpoint>& checkpoints();
  bool is_alive();

  // Of the recorder and the series, or the mesh of the config; at least 1.
  int64_t num_ranks();
  std::vector<AxisSize> axes();
  int64_t last_step() const;

 private:
  Observation observe() const;
  StateVerdict judge();
  std::vector<Alert> find_alerts();
  std::vector<SavedCheckpoint> find_checkpoints() const;

  std::filesystem::path folder_;
  Tail tail_;
  MetricLine line_;
  MetricColumns metrics_;
  SeriesView series_;
  AlertScan scan_;
  int64_t num_unreadable_ = 0;
  Paced<RunConfig> config_;
  Paced<launch::EventLog> events_;
  Paced<Observation> observation_;
  Paced<StateVerdict> verdict_;
  Paced<Goodput> goodput_;
  Paced<std::vector<Alert>> alerts_;
  Paced<std::vector<SavedCheckpoint>> checkpoints_;
};

}  // namespace trireme::watch
