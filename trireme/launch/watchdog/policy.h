// What the watchdog does about each kind of fault.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace trireme::launch::inline internal {

enum class FaultKind {
  kCrash,       // a worker ended that should not have
  kHang,        // nobody progresses; or the worker is stopped
  kStraggler,   // a worker is slower than its peers in its own computing
  kCorruption,  // the replica check found other bits
};
// "crash", "hang", "straggler", "corruption"
std::string name_of(FaultKind kind);

enum class Action {
  kWarn,
  kRestart,  // the worker
  kExclude,  // the worker's host, for Policy::exclusion; without a spare host the run shrinks
  kStop,     // the run: a restart would not help
};
// "warn", "restart", "exclude", "stop"
std::string name_of(Action action);

struct Policy {
  Action crash = Action::kRestart;
  Action hang = Action::kRestart;
  Action straggler = Action::kWarn;
  Action corruption = Action::kExclude;
  // Nobody progresses for this long: a hang. Longer than any pause in which no rank makes a call.
  std::chrono::seconds hang_after{120};
  // A straggler's own computing per step exceeds the median of its peers by this factor, and by
  // this much, in kMaxWindows consecutive windows.
  double slower_by = 1.5;
  std::chrono::milliseconds slower_by_at_least{5};
  // How long an excluded host stays out.
  std::chrono::seconds exclusion{3600};
};

Action action_of(const Policy& policy, FaultKind kind);

// Parses "hang=exclude, hang-after=60, slower-by=2" into changes of the default policy.
//   crash, hang, straggler, corruption   warn | restart | exclude | stop
//   hang-after, exclusion                seconds
//   slower-by                            a factor
// Throws: ConfigError, one line with the key
Policy parse_policy(std::string_view text);

}  // namespace trireme::launch::inline internal
