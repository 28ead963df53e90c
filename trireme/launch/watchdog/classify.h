// Tells faults apart: crash, hang, straggler, silent corruption. Names the worker and the evidence.
// Pure functions of their arguments.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/launch/watchdog/observation.h"
#include "trireme/launch/watchdog/policy.h"

namespace trireme::launch::inline internal {

// How a worker ended.
struct WorkerExit {
  int rank = -1;
  std::string host{};
  int code = 0;           // exit code; -1 when a signal killed it
  int signal = 0;         // that signal
  std::string message{};  // what it wrote to TRIREME_ERROR_FD
  int64_t step = 0;       // its last finished step
};

struct Fault {
  FaultKind kind = FaultKind::kCrash;
  int rank = -1;
  std::string host{};
  int64_t step = 0;        // the rank's last finished one
  std::string evidence{};  // one line, printable
  Action action = Action::kWarn;
};

// The faults of workers that have ended, causes only. A worker that ended because it lost a peer
// (exit code 3) is no fault if another one is the cause. Exit code 0 is none. A corruption names
// the ranks that differ, whichever worker reported it. `hosts`: host of each rank, for those.
// Exit codes 2 and 4 (the config, a checkpoint: no restart helps) get Action::kStop.
std::vector<Fault> classify_exits(std::span<const WorkerExit> exits,
                                  std::span<const Observation> observations, const Policy& policy);

// The faults of workers that live. observations: the latest of every rank of the epoch, from all
// hosts. Warnings repeat as long as the fault lasts; tell them once.
std::vector<Fault> classify(std::span<const Observation> observations, const Policy& policy);

}  // namespace trireme::launch::inline internal
