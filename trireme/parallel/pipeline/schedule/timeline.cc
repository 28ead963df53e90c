#include "trireme/parallel/pipeline/schedule/timeline.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"

namespace trireme::parallel {

double Timeline::makespan() const {
  double first = 0;
  double last = 0;
  bool any = false;
  for (const auto& actions : ranks) {
    if (actions.empty()) continue;
    first = any ? std::min(first, actions.front().start) : actions.front().start;
    last = any ? std::max(last, actions.back().end) : actions.back().end;
    any = true;
  }
  return last - first;
}

double Timeline::cost() const {
  double cost = 0;
  for (const auto& actions : ranks) {
    if (!actions.empty()) cost = std::max(cost, actions.back().end - actions.front().start);
  }
  return cost;
}

double Timeline::busy_time(int rank) const {
  double busy = 0;
  for (const TimedAction& timed : ranks[rank]) busy += timed.end - timed.start;
  return busy;
}

double Timeline::idle_time(int rank) const { return makespan() - busy_time(rank); }

double Timeline::idle_share(int rank) const {
  const double whole = makespan();
  return whole > 0 ? idle_time(rank) / whole : 0;
}

double Timeline::bubble() const {
  double busiest = 0;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank)
    // Against the busiest rank: uneven stages are no bubble.
    busiest = std::max(busiest, busy_time(rank));
  const double whole = cost();
  return whole > 0 ? (whole - busiest) / whole : 0;
}

Timeline Timeline::scaled(double factor) const {
  Timeline result = *this;
  for (auto& actions : result.ranks) {
    for (TimedAction& timed : actions) {
      timed.start *= factor;
      timed.end *= factor;
    }
  }
  return result;
}

Timeline make_timeline(const Schedule& schedule, const PipelineCosts& costs) {
  Timeline timeline;
  timeline.ranks.resize(schedule.actions.size());
  Completion completion(schedule, costs.communication);
  std::vector<size_t> next(schedule.actions.size());
  std::vector<double> free(schedule.actions.size());
  // Any order of ranks: times follow from what an action needs.
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
      for (; next[rank] < schedule.actions[rank].size(); ++next[rank]) {
        const Action& action = schedule.actions[rank][next[rank]];
        if (is_compute(action.kind)) {
          const double ready = completion.ready_time(action);
          if (ready < 0) break;
          const double start = std::max(free[rank], ready);
          free[rank] = start + duration_of(action, costs);
          completion.finish(action, free[rank]);
          timeline.ranks[rank].push_back({action, start, free[rank]});
        }
        moved = true;
      }
    }
  }
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    TRIREME_CHECK(next[rank] == schedule.actions[rank].size(), schedule.name, ": rank ", rank,
                  " never comes to its ", to_string(schedule.actions[rank][next[rank]]),
                  "; what it needs is missing or waits for it in turn");
  }
  return timeline;
}

}  // namespace trireme::parallel
