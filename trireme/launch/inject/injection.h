// Faults to inject into a run, for drills: `trireme run --inject TEXT`. docs/watchdog.md has the
// grammar.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch::inline internal {

enum class InjectedFault {
  kKill,       // a signal, SIGKILL by default
  kStop,       // SIGSTOP, and SIGCONT after `duration`
  kExit,       // the worker is killed and counts as ended with `code`
  kPartition,  // the host's network is down for `duration`
  kDelay,      // its packets leave late by `delay` for `duration`
  kLoss,       // a share of its packets is lost for `duration`
  kFill,       // the disk of the run's folder is full for `duration`
  kLeave,      // the host leaves
  kJoin,       // the host joins
};
// "kill", "stop", ...
std::string name_of(InjectedFault fault);

enum class Target {
  kRank,
  kWorkers,  // all of a host
  kAgent,    // of a host
  kHost,
};

enum class Trigger {
  kAfter,       // `after` has passed since the start
  kAtStep,      // the rank is in this step
  kInSave,      // a checkpoint is being saved; not before `after`
  kInRecovery,  // the run recovers from a fault; not before `after`
  kWithin,      // at a random moment from the start to `after`
};

struct Injection {
  InjectedFault fault = InjectedFault::kKill;
  Target target = Target::kRank;
  int rank = -1;       // -1: any; chosen when it is due
  std::string host{};  // "": any; chosen when it is due
  int signal = 9;
  int code = 1;
  std::chrono::milliseconds duration{0};  // zero: for good
  std::chrono::milliseconds delay{0};     // of packets
  double loss = 0;                        // share of packets, 0 to 1
  Trigger trigger = Trigger::kAfter;
  int64_t step = 0;  // of kAtStep
  std::chrono::milliseconds after{0};
  bool operator==(const Injection&) const = default;
};

// In the grammar: parse_injections(to_string(x)) is x.
std::string to_string(const Injection& injection);

// "kill rank=1 at step=50; stop rank=2 for 20s; partition host=b for 10s".
// Throws: ConfigError, one line with the place and what may stand there. Also beyond 64 KiB and
//         1024 injections.
std::vector<Injection> parse_injections(std::string_view text);

}  // namespace trireme::launch::inline internal
