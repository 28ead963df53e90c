// When each action of a schedule runs, if the actions take given times: the bubble before anything
// is run, and what a measured run is held against.
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

  // From the first start to the last end of all ranks.
  double makespan() const;
  // The longest time from a rank's first start to its last end: what one step costs when the next
  // follows at once.
  double cost() const;
  // Time in which a rank computes nothing, of the makespan.
  double idle_time(int rank) const;
  double idle_share(int rank) const;
  // (cost - work of the busiest rank) / cost; with equal stages (cost - m (T_F + T_B + T_W)) /
  // cost.
  // Source: Qi et al. 2023, arXiv:2401.10241, section 5.3
  double bubble() const;
  // With every time multiplied: seconds as milliseconds.
  Timeline scaled(double factor) const;

 private:
  double busy_time(int rank) const;
};

// Runs every action as soon as its rank is free and what it needs has arrived.
// Throws: ConfigError when actions wait for each other in a circle, or for one that is missing
Timeline make_timeline(const Schedule& schedule, const PipelineCosts& costs);

}  // namespace trireme::parallel
