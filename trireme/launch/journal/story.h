// Tells from a run's events how its time was spent: in steps that were kept, in failures and their
// recovery, in steps that had to be repeated. Arithmetic on events; reads no file and no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/journal/event.h"

namespace trireme::launch {

struct CauseShare {
  std::string cause{};
  int64_t num_failures = 0;
  double down_seconds = 0;      // from a failure to the next step that was finished
  double repeated_seconds = 0;  // steps that were finished and lost
  int64_t num_repeated_steps = 0;
  double lost_seconds() const { return down_seconds + repeated_seconds; }
};

struct Story {
  bool has_ended = false;
  std::string end_cause{};  // of the last job; "": it is done, or goes on
  int64_t num_epochs = 0;
  int64_t num_failures = 0;
  int64_t last_step = -1;  // the newest that an event names; -1: none
  // wall = kept + start + all lost. A run may have had several jobs; the time between them does not
  // count.
  double wall_seconds = 0;
  double kept_seconds = 0;
  double start_seconds = 0;                              // from a job's start to its first step
  std::vector<CauseShare> causes{};                      // the most time lost first
  std::vector<double> recovery_seconds{};                // of each recovery, in order
  std::vector<std::pair<std::string, int64_t>> hosts{};  // failures; the most first
  int64_t num_without_end = 0;                           // jobs that were killed with their leader

  // Share of the time that was spent in steps that were kept. Nothing when that is not known: no
  // time has passed, or no event names a step, as of programs that do not say theirs.
  std::optional<double> goodput() const {
    if (wall_seconds <= 0 || last_step < 0) return std::nullopt;
    return kept_seconds / wall_seconds;
  }
};

// The time between the first step of an epoch and its end counts as steps, saves and evaluations
// included. If the first step of an epoch was finished before, the share of the steps from there on
// counts as repeated. Time until a recovery counts for the latest failure.
// Between two events of a leader its own clock counts; the host's may have been set.
// until: now, for a run that goes on; otherwise the last event's time.
Story story_of(const EventLog& log, std::optional<WallTime> until = std::nullopt);

}  // namespace trireme::launch
