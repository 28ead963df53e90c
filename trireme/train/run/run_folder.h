// The folder that a run writes, on rank 0: locked, with its metrics open. Detects when someone
// removes or moves it during the run, or begins another run in its place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/file/folder.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::train {

// Not thread safe.
class RunFolder {
 public:
  // lock: of the folder at `path`. write_files: writes what a run has besides config and metrics.
  RunFolder(std::filesystem::path path, std::unique_ptr<FolderLock> lock,
            std::function<void(const std::filesystem::path&)> write_files);

  // Writes the task's files and config.toml, and opens the metrics, which continue after
  // `last_step`.
  // Throws: Error when the folder cannot be written
  void start(const std::string& config, int64_t last_step);
  void write_config(const std::string& config);
  // After start().
  MetricsWriter& metrics() { return *metrics_; }

  // Whether the path still leads to this folder. Costs one stat.
  bool is_in_place() const { return lock_->is_in_place(); }

  // The fate of a folder that is not in its place.
  struct Loss {
    std::filesystem::path refuge;  // a run's folder that can take a checkpoint; empty: none
    std::string message;           // for the user, to show once the checkpoint is there
  };
  // Call after the step of `metrics`, whose line is the last one. Uses a moved folder where it is
  // now. Makes a removed folder again, without its content. Never touches another folder in its
  // place.
  Loss recover(const StepMetrics& metrics);

 private:
  bool make_again();

  std::filesystem::path path_;
  std::unique_ptr<FolderLock> lock_;
  std::function<void(const std::filesystem::path&)> write_files_;
  std::string config_;
  std::optional<MetricsWriter> metrics_;
};

// The epochs of a run's folder, over all jobs that ever wrote it. An agent counts the epochs of its
// own job only, and a job that goes on with a run begins at 1 again.

inline constexpr const char* kEpochsName = "epochs.jsonl";

// The number of epoch `job_epoch` of the agent's `job` in the run's folder, from 1. Later epochs of
// a job have higher numbers, in whatever order their ranks ask: one that was paused and asks after
// its successor gets the lower number. Another job's numbers are above all that the folder has.
// Without an agent (job_epoch 0) the newest number there is; 1 in a new folder. Notes what it gives
// in epochs.jsonl.
// Call with the folder's lock.
// Throws: Error when the file cannot be read or written
int64_t number_epoch(const std::filesystem::path& folder, const std::string& job,
                     int64_t job_epoch);

}  // namespace trireme::train
