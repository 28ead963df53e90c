// The leader's decision: which hosts run which ranks, or that they stop. Each plan is complete and
// replaces all earlier ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/bounded_json.h"
#include "trireme/launch/membership/report.h"

namespace trireme::launch {

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
  std::vector<std::string> spares{};  // ids of hosts whose workers wait for a later epoch
  // Ids of hosts that are heard again after they were counted out. They have no part in the job
  // any more: their agents kill what still runs there, and may join under other ids.
  std::vector<std::string> counted_out{};
  std::vector<PlannedInjection> injections{};  // the latest ones
  int64_t links_asked = 0;                     // counts the questions who reaches whom
  std::vector<LinkedHost> linked{};            // the newest one: all hosts that take part in it

  int num_ranks() const;
  // Null when the host has no part in the epoch.
  const PlannedHost* find(std::string_view id) const;
  const RefusedHost* find_refused(std::string_view id) const;
  bool is_spare(std::string_view id) const;
  bool has_counted_out(std::string_view id) const;
};

std::string to_json(const Plan& plan);
// Throws: ConfigError when `text` is not a plan
Plan parse_plan(std::string_view text);

// Bounds of what agents tell each other. They are trusted as far as they know the job's token, yet
// a bug on one host must not exhaust another.

inline constexpr int kMaxHosts = 1 << 16;
inline constexpr int kMaxWorkers = 1 << 12;  // of a host
inline constexpr int kMaxRanks = 1 << 20;
inline constexpr int kMaxEpoch = 1 << 30;
inline constexpr size_t kMaxReasonBytes = 500;
inline constexpr size_t kMaxProgramBytes = size_t{64} << 10;
inline constexpr JsonLimits kMessageLimits{
    .max_bytes = size_t{8} << 20, .max_values = size_t{1} << 20, .max_depth = 6};

}  // namespace trireme::launch
