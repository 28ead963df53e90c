// The timeline of a schedule: when each action runs, given the actions' durations. It predicts the
// bubble, and measured runs are compared with it.
#pragma once

#include <vector>

#include "trireme/parallel/pipeline/schedule/schedule.h"

namespace trireme::parallel {

struct TimedAction {
  Action action;
  double start = 0;
  double end = 0;
};

struct Timeline {
  std::vector<std::vector<TimedAction>> ranks;  // compute actions, in order

  // Time from the first start to the last end over all ranks.
  double makespan() const;
  // The longest time from a rank's first start to its last end: the cost of a step when the next
  // one follows at once.
  double cost() const;
  // The part of the makespan in which a rank computes nothing.
  double idle_time(int rank) const;
  double idle_share(int rank) const;
  // (cost - work of the busiest rank) / cost. With equal stages: (cost - m (T_F + T_B + T_W)) /
  // cost.
  // Source: Qi et al. 2023, arXiv:2401.10241, section 5.3
  double bubble() const;
  // All times multiplied by `factor`, for example to turn seconds into milliseconds.
  Timeline scaled(double factor) const;

 private:
  double busy_time(int rank) const;
};

// Runs every action as soon as its rank is free and its inputs have arrived.
// Throws: ConfigError when actions wait for each other in a circle, or for one that is missing
Timeline make_timeline(const Schedule& schedule, const PipelineCosts& costs);

}  // namespace trireme::parallel
