// Tracks which compute actions of a schedule are done, and when another may start. The only place
// that defines what depends on what.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel::inline internal {

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

}  // namespace trireme::parallel::inline internal
