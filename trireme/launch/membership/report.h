// What an agent tells the leader about its host and its workers. A report is complete: the newest
// one replaces all before it, so none is missed when one is lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/launch/watchdog/observation.h"

namespace trireme::launch::inline internal {

using Clock = std::chrono::steady_clock;

enum class WorkerState {
  kRunning,  // of the report's epoch, or on its way there
  kLeft,     // its groups are gone; waits for the next epoch
  kSpare,    // the layout had no place for it in this epoch; waits
  kDone,     // ended with code 0
  kFailed,   // ended otherwise
};

struct WorkerReport {
  WorkerState state = WorkerState::kRunning;
  int rank = -1;           // in the report's epoch
  int64_t step = 0;        // finished steps
  int64_t first_step = 0;  // the first one that it has finished in this epoch; 0: none
  int code = 0;            // of a failed one; -1 when a signal killed it
  int signal = 0;
  std::string message{};  // why it ended or left, one line
};

struct HostReport {
  std::string id;              // random, another one each time the host joins
  std::string name;            // for people
  std::string address;         // where ranks of other hosts reach this one
  int port = 0;                // free there, for rank 0's store in the next epoch
  int node_rank = -1;          // place among the hosts; -1: after those that joined before
  int num_workers = 1;         // that it runs
  int epoch = 0;               // of the newest plan that it has carried out; 0: none
  bool is_leaving = false;     // had a notice; goes as soon as its workers have saved
  std::string notice{};        // that notice
  bool is_ending = false;      // has seen the plan to stop
  bool keeps_workers = false;  // they speak the link, and can be started before they have a rank
  std::string program{};  // what all hosts must have alike (program.h); "" after its first plan
  int64_t beat = 0;       // counts reports
  int64_t clock_us = 0;   // the host's clock when this report was made
  std::vector<WorkerReport> workers{};
  std::vector<Observation> observations{};  // of those that run
};

std::string to_json(const HostReport& report);
// Throws: ConfigError when `text` is not a report; `source` names it in the message
HostReport parse_report(std::string_view text, const std::string& source);

// "rank 1 on b was killed by signal 9 (Killed)"; without `host` "rank 1 was killed ...".
std::string describe(const WorkerReport& worker, const std::string& host);

}  // namespace trireme::launch::inline internal
