// What a job says: to people, to the log files of its ranks, and to the event log.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/agent/agent.h"
#include "trireme/launch/journal/event_file.h"
#include "trireme/launch/journal/first_errors.h"
#include "trireme/launch/journal/log_file.h"
#include "trireme/launch/membership/report.h"

namespace trireme::launch::inline internal {

// Not thread safe. Until the folder is known, output waits in memory.
class JobOutput {
 public:
  JobOutput(std::string host, AgentObserver& observer)
      : host_(std::move(host)), observer_(observer) {}

  // The folder of logs and events. Only the first call counts.
  void set_folder(const std::filesystem::path& folder);
  bool has_folder() const { return !folder_.empty(); }
  const std::filesystem::path& folder() const { return folder_; }

  void add_output(int rank, LogStream stream, int64_t epoch, int64_t step, std::string_view text);
  // A worker has ended: completes its lines, and shows the message if it failed.
  void add_exit(int rank, int64_t epoch, int64_t step, const std::string& message, bool lost_peer);
  // The agent itself says something: shown and logged.
  void say(const std::string& line, int64_t epoch, bool is_error = false);
  // The leader's.
  void write(const Event& event);
  // Call several times a second.
  void poll(Clock::time_point now);
  // Shows what is held. Each rank may show a first error again.
  void flush();
  // How much waits for a folder.
  size_t num_held_bytes() const { return num_held_bytes_; }

 private:
  struct Held {
    int rank;
    LogStream stream;
    int64_t epoch;
    int64_t step;
    WallTime time;
    std::string text;
  };

  LogWriter& log_of(int rank);
  void log(const Held& output);
  void show(const std::vector<std::string>& lines);
  void report_problems();

  std::string host_;
  AgentObserver& observer_;
  std::filesystem::path folder_;
  std::vector<Held> held_;
  std::vector<Event> held_events_;
  size_t num_held_bytes_ = 0;
  std::map<int, LogWriter> logs_;  // by rank; -1: the agent's
  std::optional<EventWriter> events_;
  FirstErrors errors_;
};

}  // namespace trireme::launch::inline internal
