// The workers of this host: what an epoch asks of all of them, and a thread that observes them,
// because their flight recorders may lie on a file system that does not answer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

#include "trireme/base/machine/machine.h"
#include "trireme/launch/agent/drill.h"
#include "trireme/launch/agent/job_output.h"
#include "trireme/launch/agent/worker.h"
#include "trireme/launch/membership/rank_plan.h"
#include "trireme/launch/output/output.h"
#include "trireme/launch/process/rank_environment.h"
#include "trireme/launch/watchdog/watch.h"

namespace trireme::launch {

// One thread uses it. Never waits.
class WatchThread {
 public:
  explicit WatchThread(WatchOptions options);

  void set_folder(std::filesystem::path folder) { folder_ = std::move(folder); }
  // Returns what was seen of these processes' ranks when it last looked, and looks again, unless it
  // still does. Nothing at first.
  std::vector<Observation> poll(const std::vector<WatchedProcess>& processes);

 private:
  struct State;

  std::shared_ptr<State> state_;  // of the thread, which may outlive this
  std::filesystem::path folder_;
  TaskQueue tasks_{1};  // one look waits at most
};

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
  // Resets the crew as if this host had just joined.
  void renew();
  // Once the function that it returns was called, the workers are killed, even while this process
  // is stopped, when it is not called again for the lease and half a second. Any thread may call
  // it, also after the crew's end.
  std::function<void()> lease_renewal() const;

  bool is_idle() const;  // no process is left
  bool keeps_workers() const;
  int epoch() const { return epoch_; }
  void set_epoch(int epoch) { epoch_ = epoch; }
  std::vector<WorkerReport> reports() const;
  std::vector<WatchedProcess> at_work() const;
  // The run's folder, if a worker has named it.
  std::filesystem::path folder() const;
  // The workers as targets of a drill.
  DrillTargets targets();

 private:
  WorkerOptions worker_options(int local_rank);
  Worker::OnOutput output_of(const Worker& worker);
  void note_end(Worker& worker, bool has_to_run);
  void tell_epoch(const Plan& plan, const PlannedHost& place);

  const AgentOptions& options_;
  JobOutput& output_;
  std::vector<CoreSet> cores_;  // of each worker; empty: not bound
  // Guards the workers. Shared with those who renew its lease.
  std::shared_ptr<GroupGuard> guard_ = std::make_shared<GroupGuard>();
  std::vector<Worker> workers_;
  int epoch_ = 0;
  std::optional<MeetingFile> meeting_{};  // of the epoch; its ranks may all be killed
};

// The cores of this host that each worker runs on.

// Divides the cores that this process may use among `num_workers`, so that neighbours share caches
// and a NUMA node (hwloc; without it, consecutive numbers). Empty when there are fewer than
// `fewest` cores for each: then the kernel does better.
std::vector<CoreSet> divide_cores(int num_workers, int fewest = 1);

// Fewest cores of a worker whose ranks send over TCP. Gloo's thread spins while the rank's own
// thread holds a lock. On one core, the latter would run again only after a time slice, 4 ms later.
inline constexpr int kFewestCoresOverNetwork = 2;

// "0-3,8".
std::string to_text(const CoreSet& cores);

}  // namespace trireme::launch
