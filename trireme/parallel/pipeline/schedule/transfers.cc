// with_transfers() and forward_only(): derive a schedule's sends and recvs from its compute
// actions.
#include <algorithm>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/schedule.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {
namespace {

// A position in the order that all ranks follow. A computation starts at `time`. Data to send was
// ready at `time`, so at equal times sends precede computations.
struct Event {
  double time = 0;
  bool is_compute = false;
  int rank = 0;
  Action action;
  int peer_rank = -1;
  Action peer_action{};
};

Event transfer(const Schedule& schedule, double time, const Action& producer, int to_stage) {
  const bool forward = producer.kind == ActionKind::kForward;
  return {.time = time,
          .rank = schedule.rank_of_stage[producer.stage],
          .action = {forward ? ActionKind::kSendActivation : ActionKind::kSendGradient,
                     producer.stage, producer.microbatch, to_stage},
          .peer_rank = schedule.rank_of_stage[to_stage],
          .peer_action = {forward ? ActionKind::kRecvActivation : ActionKind::kRecvGradient,
                          to_stage, producer.microbatch, producer.stage}};
}

void add_transfers(const Schedule& schedule, const TimedAction& timed, std::vector<Event>& events) {
  const Action& action = timed.action;
  if (action.kind == ActionKind::kBackwardWeight) return;
  const bool forward = action.kind == ActionKind::kForward;
  for (const StageEdge& edge : schedule.edges) {
    const auto [own, other] =
        forward ? std::pair(edge.from, edge.to) : std::pair(edge.to, edge.from);
    if (own == action.stage && schedule.rank_of_stage[own] != schedule.rank_of_stage[other])
      events.push_back(transfer(schedule, timed.end, action, other));
  }
}

}  // namespace

Schedule with_transfers(Schedule schedule, std::vector<StageEdge> edges) {
  std::ranges::sort(edges);
  edges.erase(std::ranges::unique(edges).begin(), edges.end());
  for (const StageEdge& edge : edges) {
    TRIREME_CHECK(edge.from >= 0 && edge.from < edge.to && edge.to < schedule.num_stages(),
                  "an edge from stage ", edge.from, " to stage ", edge.to,
                  "; expected one to a later of ", schedule.num_stages(), " stages");
  }
  schedule.edges = std::move(edges);
  std::vector<Event> events;
  const Timeline timeline = make_timeline(schedule, {});
  for (int rank = 0; rank < schedule.num_ranks(); ++rank) {
    for (const TimedAction& timed : timeline.ranks[rank]) {
      events.push_back(
          {.time = timed.start, .is_compute = true, .rank = rank, .action = timed.action});
      add_transfers(schedule, timed, events);
    }
    schedule.actions[rank].clear();
  }
  std::ranges::stable_sort(
      events, {}, [](const Event& event) { return std::pair(event.time, event.is_compute); });
  for (const Event& event : events) {
    schedule.actions[event.rank].push_back(event.action);
    if (!event.is_compute) schedule.actions[event.peer_rank].push_back(event.peer_action);
  }
  return schedule;
}

Schedule forward_only(const Schedule& schedule) {
  Schedule result = schedule;
  for (auto& actions : result.actions) {
    std::erase_if(actions, [](const Action& action) {
      return action.kind != ActionKind::kForward && action.kind != ActionKind::kSendActivation &&
             action.kind != ActionKind::kRecvActivation;
    });
  }
  return result;
}

}  // namespace trireme::parallel
