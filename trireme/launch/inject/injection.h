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
  kDelay,      // its packets are late by `delay` for `duration`
  kLoss,       // a share of its packets is lost for `duration`
  kFill,       // the disk of the run's folder is full for `duration`
  kLeave,      // the host leaves
  kJoin,       // the host joins
};
std::string name_of(InjectedFault fault);

enum class Target { kRank, kWorkersOfHost, kAgent, kHost };

enum class Trigger { kAtStep, kAfter, kInSave, kInRecovery, kRandom };

struct Injection {
  InjectedFault fault = InjectedFault::kKill;
  Target target = Target::kRank;
  int rank = -1;       // -1: any, drawn when it is due
  std::string host{};  // "": any, drawn when it is due
  int signal = 9;
  int code = 1;
  std::chrono::milliseconds duration{0};  // zero: does not end
  std::chrono::milliseconds delay{0};     // of packets
  double loss = 0;                        // share of packets, 0 to 1
  Trigger trigger = Trigger::kAfter;
  int64_t step = 0;                     // kAtStep: begins as soon as the rank is in this step
  std::chrono::milliseconds after{0};   // kAfter: of the start
  std::chrono::milliseconds within{0};  // kRandom: at a moment drawn from the start to this
  bool operator==(const Injection&) const = default;
};

// In the grammar: parse_injections(to_string(x)) is x.
std::string to_string(const Injection& injection);

// At most 64 KiB and 1024 injections.
// Throws: ConfigError, one line that shows the place and what may stand there
std::vector<Injection> parse_injections(std::string_view text);

}  // namespace trireme::launch::inline internal
