// Whether a run is well: decided from its flight recorder, its event log and its metrics. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/comm/recorder/diagnosis.h"
#include "trireme/launch/journal/story.h"

namespace trireme::watch {

enum class RunState { kRunning, kFinished, kStopped, kCrashed, kStalled, kUnknown };
inline constexpr Choice<RunState> kRunStates[] = {
    {"running", RunState::kRunning},    // steps come
    {"finished", RunState::kFinished},  // it has made its last step
    {"stopped", RunState::kStopped},    // it has ended before its last step, in good order
    {"crashed", RunState::kCrashed},    // a rank is gone
    {"stalled", RunState::kStalled},    // its processes live, and no step has come for long
    {"unknown", RunState::kUnknown},    // nothing says
};

struct StateFacts {
  std::vector<comm::ObservedRank> ranks{};  // empty: no recorder
  std::vector<comm::Finding> findings{};
  std::optional<launch::Story> story{};  // nothing: no event log
  int64_t last_step = 0;                 // 0: none
  int64_t steps = 0;                     // that it shall make; 0: unknown
  std::optional<double> changed_at{};    // when metrics.jsonl last grew, in seconds since 1970
  double step_seconds = 0;               // the median; 0: unknown
  double now = 0;                        // seconds since 1970
};

struct StateVerdict {
  RunState state = RunState::kUnknown;
  std::string why{};  // a sentence without its full stop
};

// A run has stalled when no step has come for 20 times its median step, at least 60 seconds.
StateVerdict judge_state(const StateFacts& facts);

}  // namespace trireme::watch
