// The runs that a page shows: those named, and those in the folders named.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "trireme/watch/run/watched_run.h"

namespace trireme::watch {

// Whether the folder has what a run leaves: its config, metrics, recorder or events.
bool is_run(const std::filesystem::path& folder);

// Not thread safe. A run keeps its index; runs that appear later get the next ones.
class RunList {
 public:
  static constexpr size_t kMostRuns = 200;

  // Each folder is a run, or has runs in it or in its folders.
  // Throws: ConfigError when one does not exist, or there is no run in any
  explicit RunList(const std::vector<std::filesystem::path>& folders);

  size_t size() const { return runs_.size(); }
  WatchedRun& run(size_t index) { return *runs_[index]; }
  // Its name, with as much of its path as tells it from the others.
  const std::string& name(size_t index) const { return names_[index]; }

  // Reads what is new of all runs, for about `patience`, and finds new runs. Returns whether there
  // is more at once.
  bool update(std::chrono::milliseconds patience);
  // Whether the last update() has come to the ends of all runs.
  bool is_read() const { return is_read_; }

 private:
  void find_runs();
  void name_runs();

  std::vector<std::filesystem::path> folders_;
  std::vector<std::unique_ptr<WatchedRun>> runs_;
  std::vector<std::string> names_;
  std::chrono::steady_clock::time_point next_search_{};
  size_t next_run_ = 0;  // to read first
  size_t num_read_ = 0;  // to their ends, in this round
  bool is_read_ = false;
};

}  // namespace trireme::watch
