// RUN/events.jsonl of a run that no agent watches (`trireme train`, with or without --ranks, or
// under another launcher), in the form of `trireme run` (launch/journal/event.h): when it started,
// its first step, its checkpoints, its end and why. Rank 0 writes it; of ranks that one process has
// started, that process writes who failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "trireme/base/file/file.h"
#include "trireme/cli/train/run_log.h"
#include "trireme/launch/journal/event.h"
#include "trireme/launch/local_ranks.h"
#include "trireme/train/config/config.h"
#include "trireme/train/observer.h"

namespace trireme::cli {

// Not thread safe. Never throws: what a full disk keeps out is lost.
class RunEvents {
 public:
  explicit RunEvents(std::filesystem::path run_folder)
      : run_folder_(std::move(run_folder)), writer_(run_folder_), log_(run_folder_) {}

  // The log of what rank 0 shows, which belongs to the run from start() on.
  RunLog& log() { return log_; }

  // The run's first step comes after `summary.resumed_step`.
  void start(const train::RunConfig& config, const train::RunSummary& summary);
  void finish_step(int64_t step);
  void save(const std::filesystem::path& checkpoint, double seconds);
  void end(train::Outcome outcome);
  // The run ends by an error. Nothing if it has not started.
  void fail(const std::string& reason);

 private:
  void write(launch::Event event);

  const std::filesystem::path run_folder_;
  launch::EventWriter writer_;
  RunLog log_;
  std::optional<FileIdentity> identity_;  // of the folder when the run started
  bool has_started_ = false;
  bool has_step_ = false;
  int64_t epoch_ = 0;
  int64_t step_ = 0;  // the newest finished one
  std::chrono::steady_clock::time_point began_{};
};

// What the starter of local ranks adds when one has failed, to the events and to the rank's log.
// Remembers the folder and the starts that its log had, so that neither ranks that were refused nor
// ranks whose folder was replaced add anything to another run's.
class FailureEvent {
 public:
  // run_folder: exists
  explicit FailureEvent(std::filesystem::path run_folder);
  void write(const launch::RankExit& exit) const;

 private:
  std::filesystem::path run_folder_;
  Descriptor folder_;  // keeps its identity from another folder
  int64_t starts_before_ = 0;
};

}  // namespace trireme::cli
