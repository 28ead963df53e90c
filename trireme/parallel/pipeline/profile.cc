#include "trireme/parallel/pipeline/profile.h"

#include <algorithm>

namespace trireme::parallel {

StageCosts PipelineProfile::stage_costs(int stage) const {
  StageCosts sum{0, 0, 0};
  int forwards = 0;
  for (const TimedAction& timed : actions) {
    if (timed.action.stage != stage) continue;
    const double duration = timed.end - timed.start;
    if (timed.action.kind == ActionKind::kForward) {
      sum.forward += duration;
      ++forwards;
    } else if (timed.action.kind == ActionKind::kBackwardWeight) {
      sum.backward_weight += duration;
    } else {
      sum.backward_input += duration;
    }
  }
  const double count = std::max(forwards, 1);
  return {sum.forward / count, sum.backward_input / count, sum.backward_weight / count};
}

Timeline measured_timeline(const std::vector<PipelineProfile>& profiles) {
  const auto first = std::ranges::min(profiles, {}, &PipelineProfile::begin).begin;
  Timeline timeline;
  for (const PipelineProfile& profile : profiles) {
    const double offset = std::chrono::duration<double>(profile.begin - first).count();
    timeline.ranks.emplace_back();
    for (TimedAction timed : profile.actions) {
      timed.start += offset;
      timed.end += offset;
      timeline.ranks.back().push_back(timed);
    }
  }
  return timeline;
}

}  // namespace trireme::parallel
