// What the leader has decided: which hosts run which ranks, or that they stop. A plan is complete:
// the newest one replaces all before it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch::inline internal {

// A fault to inject (inject/injection.h), on one host.
struct PlannedInjection {
  int64_t number = 0;  // counts them, from 1
  std::string host;
  std::string text;
};

enum class Phase {
  kGather,  // too few hosts; workers wait
  kRun,     // the epoch's ranks work
  kLeave,   // the epoch is over; workers give up its groups and wait
  kStop,    // the job is over; workers are asked to end
};

struct PlannedHost {
  std::string id;
  std::string name;
  int first_rank = 0;
  int num_ranks = 0;
};

struct RefusedHost {
  std::string id;
  std::string reason;
};

struct Plan {
  int64_t version = 0;
  Phase phase = Phase::kGather;
  int epoch = 0;                     // counts the groups of ranks; 0: none yet
  std::string job{};                 // a random name; with the epoch, that of a group of ranks
  std::vector<PlannedHost> hosts{};  // of the epoch, in the order of ranks
  std::string store_host{};          // where rank 0 serves the ranks' store
  int store_port = 0;
  bool is_graceful = false;  // kLeave, kStop: workers first finish their step and save
  std::string reason{};      // of the phase, one line
  int exit_code = 0;         // kStop
  int num_restarts = 0;      // epochs that a failure has ended
  std::vector<RefusedHost> refused{};
  std::vector<std::string> spares{};           // ids of hosts whose workers wait for a later epoch
  std::vector<PlannedInjection> injections{};  // the latest ones

  int num_ranks() const;
  // Null when the host has no part in the epoch.
  const PlannedHost* find(std::string_view id) const;
  const RefusedHost* find_refused(std::string_view id) const;
  bool is_spare(std::string_view id) const;
};

std::string to_json(const Plan& plan);
// Throws: ConfigError when `text` is not a plan
Plan parse_plan(std::string_view text);

}  // namespace trireme::launch::inline internal
