// Runs a command of the user's for each new alert of the runs that `trireme watch` follows.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "trireme/train/callbacks/event_commands.h"
#include "trireme/watch/run/run_list.h"

namespace trireme::cli {

struct AlertCommandOptions {
  std::string command{};               // for /bin/sh -c
  std::chrono::seconds timeout{60};    // then it is killed, with its children
  std::chrono::seconds interval{300};  // at least, between two of one kind and run
  // Alerts before this time, in seconds since 1970, are history and start nothing.
  double since = 0;
};

// Not thread safe. Commands run one after the other beside the program. One gets the alert as a
// line of JSON on stdin, and TRIREME_ALERT (its kind), TRIREME_RUN, TRIREME_STEP and TRIREME_FOLDER
// in its environment.
class AlertCommand {
 public:
  explicit AlertCommand(AlertCommandOptions options);

  // Looks at the runs' alerts. Call when the runs are read to their ends.
  void look(watch::RunList& runs);
  // A line for each command that failed since the last call.
  std::vector<std::string> take_failures() { return queue_.take_failures(); }
  // Waits until every command has ended.
  void finish() { queue_.finish(); }

 private:
  using Kind = std::pair<std::string, std::string>;  // of a run's folder, of an alert
  struct Last {
    std::chrono::steady_clock::time_point time{};  // when its command was started
    int64_t num_left_out = 0;                      // since then
  };

  void start(const std::string& name, watch::WatchedRun& run, const watch::Alert& alert);

  const AlertCommandOptions options_;
  std::set<std::tuple<std::string, std::string, int64_t>> seen_;  // folder, kind, step or -1
  std::map<Kind, Last> last_;
  train::CommandQueue queue_;
};

}  // namespace trireme::cli
