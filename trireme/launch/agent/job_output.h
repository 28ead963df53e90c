// The output of a job: to people, to the log files of its ranks, and to the event log.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/launch/agent/agent.h"
#include "trireme/launch/journal/first_errors.h"
#include "trireme/launch/journal/log_splitter.h"
#include "trireme/launch/membership/report.h"
#include "trireme/launch/output/output.h"

namespace trireme::launch {

// Not thread safe. Never waits for people or for a disk, except in finish(). Until the folder is
// known, what belongs there waits in memory.
class JobOutput {
 public:
  JobOutput(std::string host, std::shared_ptr<AgentObserver> observer)
      : host_(std::move(host)), terminal_(std::move(observer)) {}

  // The folder of logs and events. Only the first call counts.
  void set_folder(const std::filesystem::path& folder);
  bool has_folder() const { return journal_.has_value(); }

  void add_output(int rank, LogStream stream, int64_t epoch, int64_t step, std::string_view text);
  // A worker has ended: completes its lines, and shows the message if it failed.
  void add_exit(int rank, int64_t epoch, int64_t step, const std::string& message, bool lost_peer);
  // The agent itself says something: shown and logged.
  void say(const std::string& line, int64_t epoch, bool is_error = false);
  // The leader's.
  void write(Event event);
  // Call several times a second.
  void poll(Clock::time_point now);
  // Shows what is held. Each rank may show a first error again.
  void flush();
  // At the end of the job: waits until all is shown and written, but not for what hangs.
  void finish();

  // Output held until there is a folder, and whether a worker wrote any of it.
  size_t num_held_bytes() const { return num_held_bytes_; }
  bool holds_workers_output() const { return holds_workers_output_; }

 private:
  void log(int rank, std::vector<LogLine> lines);
  void show(int rank, const std::vector<LogLine>& lines);
  void show(const std::vector<std::string>& lines);
  void report_problems();

  const Clock::time_point began_ = Clock::now();
  std::string host_;
  Terminal terminal_;
  std::map<int, LogSplitter> splitters_;  // by rank; -1: the agent's
  std::vector<std::pair<int, std::vector<LogLine>>> held_;
  std::vector<Event> held_events_;
  size_t num_held_bytes_ = 0;
  bool holds_workers_output_ = false;
  std::optional<JournalWriter> journal_;
  FirstErrors errors_;
};

}  // namespace trireme::launch
