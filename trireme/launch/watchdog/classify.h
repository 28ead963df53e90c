// Tells faults apart: crash, hang, straggler, silent corruption. Names the worker and the evidence.
// Pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/launch/watchdog/observation.h"
#include "trireme/launch/watchdog/policy.h"

namespace trireme::launch {

// How a worker ended.
struct WorkerExit {
  int rank = -1;
  std::string host{};
  int code = 0;                   // exit code; -1 when a signal killed it
  int signal = 0;                 // that signal
  std::string message{};          // what it wrote to TRIREME_ERROR_FD
  std::optional<int64_t> step{};  // its last finished step; none: it is not known
};

struct Fault {
  FaultKind kind = FaultKind::kCrash;
  int rank = -1;
  std::string host{};             // "": not known
  std::optional<int64_t> step{};  // the rank's last finished one; none: it is not known
  std::string evidence{};         // one line, with rank and host
  Action action = Action::kWarn;
  bool is_of_host = false;  // another host may have what this one lacks
};

// The faults behind the ends of workers: causes only, likely ones first. Exit code 0 is none. A
// worker that has only lost a peer (exit code 3) counts if nothing else explains it, so wait a
// moment for the exits of all hosts. Corruption names the ranks that differ, whichever worker said
// so; their hosts come from `observations`. Without a majority of equal replicas nobody knows the
// wrong host, so that kExclude becomes kRestart. Exit codes 2 and 4 get kStop: no restart helps. A
// host that has too little shared memory gets kExclude instead: the job may go on elsewhere.
std::vector<Fault> classify_exits(std::span<const WorkerExit> exits,
                                  std::span<const Observation> observations, const Policy& policy);

// The faults of workers that live, likely causes first.
// observations: the latest of every rank of the epoch, from all hosts, each rank once. A hang needs
// those of all ranks with evidence: WatchOptions::evidence_after is shorter than policy.hang_after.
// A fault comes again with each call as long as it lasts.
std::vector<Fault> classify(std::span<const Observation> observations, const Policy& policy);

// The two parts of classify().
std::vector<Fault> find_hang(std::span<const Observation> observations, const Policy& policy);
std::vector<Fault> find_stragglers(std::span<const Observation> observations, const Policy& policy);

}  // namespace trireme::launch
