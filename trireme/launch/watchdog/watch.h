// Observes the workers of this host through their flight recorders and /proc. It takes no part in
// their work: nothing is sent, and no worker waits for it.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/launch/watchdog/observation.h"

namespace trireme::launch {

struct WatchOptions {
  std::filesystem::path folder{};  // with the rings: the run's recorder/; empty: not known yet
  std::string host{};              // the name for this host in observations
  // A rank that has been idle for this long is observed with evidence.
  std::chrono::milliseconds evidence_after{5000};
};

struct WatchedProcess {
  int rank = 0;
  int64_t process_id = 0;  // the worker, or a script that has started it
};

// Not thread safe.
class Watch {
 public:
  explicit Watch(WatchOptions options);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  // Where the rings are, once a worker has said it ("hello").
  void set_folder(std::filesystem::path folder);

  // One observation for each of `processes`, in their order. Forgets processes that are no longer
  // among them, and what a process did under another rank. A ring that cannot be read, or that its
  // rank has closed, counts as none; a process that has several is seen by its newest. Never throws
  // for what it finds in a folder or a ring.
  // Cost: 0.1 ms of CPU time per process; 0.7 ms for an idle one, whose whole ring is read
  //       (benchmarks/watchdog.cc). While a ring is missing, at most 128 files are tried.
  std::vector<Observation> poll(std::span<const WatchedProcess> processes);

 private:
  class Subject;

  WatchOptions options_;
  std::map<int64_t, std::unique_ptr<Subject>> subjects_;  // by process id
};

// Sorts one rank's steps into windows and keeps the medians of the latest complete ones.
class StepWindows {
 public:
  // Adds a finished step. A step that does not follow the last one begins anew: a run that went
  // back to a checkpoint repeats its steps.
  void add(int64_t step, std::chrono::nanoseconds computing, std::chrono::nanoseconds waiting);
  const std::vector<StepWindow>& complete() const { return complete_; }

 private:
  int64_t last_step_ = 0;
  std::vector<std::chrono::nanoseconds> computing_, waiting_;  // of the window under way
  std::vector<StepWindow> complete_;
};

}  // namespace trireme::launch
