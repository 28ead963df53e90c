#include "trireme/parallel/pipeline/schedule/dependencies.h"

#include <algorithm>
#include <utility>

namespace trireme::parallel::inline internal {
namespace {

constexpr double kNotDone = -1;
constexpr size_t kNumParts = 3;

size_t part_of(ActionKind kind) {
  if (kind == ActionKind::kForward) return 0;
  return kind == ActionKind::kBackwardWeight ? 2 : 1;
}

}  // namespace

Completion::Completion(const Schedule& schedule, double communication)
    : schedule_(schedule),
      communication_(communication),
      sources_(schedule.rank_of_stage.size()),
      targets_(schedule.rank_of_stage.size()),
      ends_(kNumParts * schedule.rank_of_stage.size() *
                static_cast<size_t>(schedule.num_microbatches),
            kNotDone) {
  for (const StageEdge& edge : schedule.edges) {
    sources_[edge.to].push_back(edge.from);
    targets_[edge.from].push_back(edge.to);
  }
}

const double& Completion::slot(const Action& action) const {
  const size_t index = static_cast<size_t>(action.stage) * schedule_.num_microbatches +
                       static_cast<size_t>(action.microbatch);
  return ends_[kNumParts * index + part_of(action.kind)];
}

double& Completion::slot(const Action& action) {
  return const_cast<double&>(std::as_const(*this).slot(action));
}

void Completion::finish(const Action& action, double time) { slot(action) = time; }

double Completion::arrival(ActionKind kind, int stage, int to_stage, int microbatch) const {
  const double end = slot({kind, stage, microbatch});
  const bool travels = schedule_.rank_of_stage[stage] != schedule_.rank_of_stage[to_stage];
  return end < 0 || !travels ? end : end + communication_;
}

double Completion::ready_time(const Action& action) const {
  double ready = 0;
  const auto need = [&](ActionKind kind, int stage) {
    const double time = arrival(kind, stage, action.stage, action.microbatch);
    ready = ready < 0 || time < 0 ? kNotDone : std::max(ready, time);
  };
  switch (action.kind) {
    case ActionKind::kForward:
      for (const int source : sources_[action.stage]) need(ActionKind::kForward, source);
      break;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      need(ActionKind::kForward, action.stage);
      for (const int target : targets_[action.stage]) need(ActionKind::kBackward, target);
      break;
    case ActionKind::kBackwardWeight: need(ActionKind::kBackwardInput, action.stage); break;
    default: break;
  }
  return ready;
}

}  // namespace trireme::parallel::inline internal
