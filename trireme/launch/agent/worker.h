// One worker of this host: its process, its output, and what it says over the link.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>

#include "trireme/launch/journal/log_line.h"
#include "trireme/launch/link/link_ends.h"
#include "trireme/launch/link/message.h"
#include "trireme/launch/membership/report.h"
#include "trireme/launch/process/child.h"

namespace trireme::launch {

// A worker's part in an epoch.
struct Assignment {
  Join join;
  int num_restarts = 0;     // of the job
  std::string master_host;  // for programs that meet by MASTER_ADDR and MASTER_PORT
  int master_port = 0;
  int node_rank = 0;
  int num_nodes = 1;
};

struct WorkerOptions {
  std::vector<std::string> command{};
  Environment environment{};       // of every worker; variables of its rank come on top
  std::optional<CoreSet> cores{};  // it may run on these
  GroupGuard* guard = nullptr;     // as in ChildOptions
  int max_restarts = 0;            // for TORCHELASTIC_MAX_RESTARTS
  // How long a worker may take to leave an epoch or, asked to, to end, before SIGKILL.
  std::chrono::milliseconds grace{5000};
  std::chrono::milliseconds graceful_grace{600'000};  // when it saves first
};

// Not thread safe.
class Worker {
 public:
  using OnOutput = std::function<void(LogStream stream, std::string_view text)>;

  explicit Worker(WorkerOptions options) : options_(std::move(options)) {}

  // Takes the assignment: over the link if the process lives and waits, else in a new process.
  // Throws: Error when no process can be made
  void take(const Assignment& assignment);
  // Starts a process before there is an epoch for it, if there is none. It waits for take(). Only
  // for programs that speak the link.
  void warm_up();
  // Gives the epoch up: at once, or when it has finished its step and saved. A program that does
  // not speak the link is ended.
  void leave(const Leave& message, Clock::time_point now);
  void finish(const Finish& message, Clock::time_point now);
  void stop(bool is_graceful, Clock::time_point now);
  void kill();
  // Once it has ended, it counts as ended with this code.
  void pretend(int code) { pretended_code_ = code; }

  // For poll(): the descriptors that may be readable.
  void add_descriptors(std::vector<pollfd>& to) const;
  // Reads what has arrived. Never waits.
  void read(const OnOutput& on_output);
  // Collects the process if it has ended, after reading the rest of its output; kills it when it is
  // late. Returns whether it ended.
  bool update(Clock::time_point now, const OnOutput& on_output);

  bool speaks_link() const { return speaks_link_; }
  bool is_alive() const { return process_.has_value(); }
  int64_t process_id() const { return process_ ? process_->pid() : 0; }
  // The state in the epoch; nothing before the first assignment.
  const std::optional<WorkerReport>& report() const { return report_; }
  // The run's folder that it has named; "" when none.
  const std::string& folder() const { return folder_; }

 private:
  void start(const std::string& name, Environment environment);
  bool is_waiting() const;
  bool is_at_work() const;
  void read_link();
  void take_message(const ToAgent& message);
  void drain(Descriptor& from, LogStream stream, const OnOutput& on_output);

  WorkerOptions options_;
  std::optional<Child> process_;
  std::optional<WorkerLink> link_;
  Descriptor output_;
  Descriptor errors_;
  Descriptor last_words_;  // read end of the pipe behind TRIREME_ERROR_FD
  bool speaks_link_ = false;
  bool is_warm_ = false;  // the process has had no part in an epoch yet
  std::string folder_;
  int64_t epoch_ = 0;
  std::optional<WorkerReport> report_;
  std::optional<Clock::time_point> deadline_;
  std::optional<int> pretended_code_;
};

}  // namespace trireme::launch
