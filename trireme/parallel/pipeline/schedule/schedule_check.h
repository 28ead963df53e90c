// What depends on what in a schedule, and the check that a schedule can be run.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

// Tracks which compute actions of a schedule are done, and when another may start. The only place
// that defines what depends on what.
class Completion {
 public:
  // `schedule` must outlive it. `communication` is the time between two ranks.
  explicit Completion(const Schedule& schedule, double communication = 0);

  // When everything that `action` needs has arrived at its rank; negative while something is not
  // done. A forward needs the forwards of the stages that feed it. A backward (or its input part)
  // needs its forward and the backwards of the stages it feeds. A weight part needs its input part.
  double ready_time(const Action& action) const;
  bool is_ready(const Action& action) const { return ready_time(action) >= 0; }

  void finish(const Action& action, double time = 0);
  bool is_done(const Action& action) const { return slot(action) >= 0; }

 private:
  double& slot(const Action& action);
  const double& slot(const Action& action) const;
  double arrival(ActionKind kind, int stage, int to_stage, int microbatch) const;

  const Schedule& schedule_;
  double communication_;
  std::vector<std::vector<int>> sources_;  // by stage: the stages that feed it
  std::vector<std::vector<int>> targets_;  // by stage: the stages it feeds
  // End times of forward, backward (or its input part) and weight part, by stage and microbatch; -1
  // if not done.
  std::vector<double> ends_;
};

// Checks that a schedule can be run: every part once and in order, matching transfers, no deadlock.
// Computes the activations it holds.

// The most activations a rank holds at one time. 1 is one microbatch on one stage.
struct PeakActivations {
  int until_backward = 0;  // from a forward to its backward, or its input part
  int until_weight = 0;    // from a forward to its backward, or its weight part
  bool operator==(const PeakActivations&) const = default;
};
// One entry per rank. The schedule may be invalid.
std::vector<PeakActivations> peak_activations(const Schedule& schedule);

// Throws: ConfigError naming rank, action and reason, when
//         - an action is on a rank that does not hold its stage, or its stage or microbatch is out
//           of range
//         - a forward, or a part of a backward, is missing or appears twice
//         - the backwards of a stage, or its weight parts, are not in ascending order
//         - a send has no recv, a recv no send, or an edge between ranks has neither
//         - an action comes before what it needs, or ranks wait for each other in a circle (with
//           each send waiting for its recv)
void check_schedule(const Schedule& schedule);

}  // namespace trireme::parallel
