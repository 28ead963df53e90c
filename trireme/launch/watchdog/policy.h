// The watchdog's action for each kind of fault.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace trireme::launch {

enum class FaultKind {
  kCrash,       // a worker has ended that should not have
  kHang,        // nobody progresses
  kStraggler,   // a worker is slower than its peers in its own computing
  kCorruption,  // the replica check has found other bits
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
  // Nobody progresses for this long: a hang. It must exceed the pauses of a healthy run, such as
  // one rank's long write while the others wait in a call.
  std::chrono::seconds hang_after{120};
  // A straggler's own computing per step exceeds the median of its peers by this factor and by at
  // least this much, in three consecutive windows of kWindowSteps.
  double slower_by = 1.5;
  std::chrono::milliseconds slower_by_at_least{5};
  std::chrono::seconds exclusion{3600};  // how long an excluded host stays out
};

Action action_of(const Policy& policy, FaultKind kind);

// Changes of the default policy, as `trireme run --policy` takes them:
// "hang=exclude, hang-after=60, slower-by=2". A value of
//   crash, hang, straggler, corruption   is warn, restart, exclude or stop
//   hang-after, exclusion                are seconds
//   slower-by                            is a factor above 1
// Throws: ConfigError, one line with the key
Policy parse_policy(std::string_view text);

}  // namespace trireme::launch
