// The folder that a run writes, on rank 0: locked, with its metrics open. Detects when someone
// removes or moves it during the run, or begins another run in its place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/file/folder_lock.h"
#include "trireme/train/metrics/metrics.h"

namespace trireme::train::inline internal {

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

}  // namespace trireme::train::inline internal
