// The workers of this host: what an epoch asks of all of them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "trireme/launch/agent/drill.h"
#include "trireme/launch/agent/job_output.h"
#include "trireme/launch/agent/worker.h"
#include "trireme/launch/membership/plan.h"
#include "trireme/launch/process/meeting_file.h"
#include "trireme/launch/watchdog/watch.h"

namespace trireme::launch::inline internal {

// Not thread safe. `options` and `output` must outlive it.
class Crew {
 public:
  Crew(const AgentOptions& options, JobOutput& output);

  // For poll(): the descriptors that may be readable.
  void add_descriptors(std::vector<pollfd>& to) const;
  // Reads what the workers said, and collects those that have ended. `has_to_run`: whether one that
  // a signal has ended has failed, or was asked to end.
  void update(bool has_to_run);

  // The plan's epoch begins here, with the ranks of `place`.
  void begin_epoch(const Plan& plan, const PlannedHost& place);
  // This host has no part in it. Starts workers that wait for theirs.
  void warm_up();
  // It has ended; workers give up its groups.
  void end_epoch(const Plan& plan);
  void stop(bool is_graceful);
  void kill();
  // As if this host had just come.
  void renew();

  bool is_idle() const;  // no process is left
  bool keeps_workers() const;
  int epoch() const { return epoch_; }
  void set_epoch(int epoch) { epoch_ = epoch; }
  std::vector<WorkerReport> reports() const;
  std::vector<WatchedProcess> at_work() const;
  // The run's folder, if a worker has named it.
  std::filesystem::path folder() const;
  // What faults for a drill may do to workers.
  DrillTargets targets();

 private:
  WorkerOptions worker_options(int local_rank) const;
  Worker::OnOutput output_of(const Worker& worker);
  void note_end(Worker& worker, bool has_to_run);
  void tell_epoch(const Plan& plan, const PlannedHost& place);

  const AgentOptions& options_;
  JobOutput& output_;
  std::vector<CoreSet> cores_;  // of each worker; empty: not bound
  std::vector<Worker> workers_;
  int epoch_ = 0;
  std::optional<MeetingFile> meeting_{};  // of the epoch; its ranks may all be killed
};

}  // namespace trireme::launch::inline internal
