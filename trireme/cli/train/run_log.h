// RUN/logs/rank-00000.log of a run that no agent watches: what rank 0 shows, in the form and within
// the bounds of `trireme run` (launch/journal/log_line.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/file/file.h"
#include "trireme/launch/journal/log_line.h"

namespace trireme::cli {

// Thread safe. Never throws: what a full disk keeps out is lost, and a line says how much.
class RunLog {
 public:
  static constexpr size_t kMostHeld = 200;  // lines before start(); later ones are dropped

  explicit RunLog(std::filesystem::path run_folder);

  // The folder belongs to this run from here on. What was added before goes into it.
  void start(int64_t epoch, int64_t step);
  void set_step(int64_t step);
  void add(const std::string& text, launch::LogStream stream = launch::LogStream::kOut);

 private:
  void write(launch::LogLine line);

  std::mutex mutex_;
  const std::filesystem::path run_folder_;
  std::optional<FileIdentity> identity_;  // of the folder when the run started
  launch::LogWriter writer_;
  std::vector<launch::LogLine> held_;
  bool has_started_ = false;
  int64_t epoch_ = 0;
  int64_t step_ = -1;
};

}  // namespace trireme::cli
