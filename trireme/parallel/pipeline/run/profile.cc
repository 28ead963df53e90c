#include "trireme/parallel/pipeline/run/profile.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "trireme/base/seconds.h"
#include "trireme/comm/objects.h"

namespace trireme::parallel {
namespace {

// A profile without its actions, which are sent as raw bytes.
struct Summary {
  std::chrono::steady_clock::time_point begin;
  std::chrono::nanoseconds waiting;
  int64_t bytes_sent;
  PeakActivations peak;
};

}  // namespace

std::vector<PipelineProfile> gather_profiles(comm::Communicator& group,
                                             const PipelineProfile& profile) {
  const Summary own{profile.begin, profile.waiting, profile.bytes_sent, profile.peak};
  std::string bytes(reinterpret_cast<const char*>(&own), sizeof(own));
  bytes.append(reinterpret_cast<const char*>(profile.actions.data()),
               profile.actions.size() * sizeof(TimedAction));
  std::vector<PipelineProfile> profiles;
  for (const std::string& text : comm::all_gather_strings(group, bytes)) {
    Summary summary;
    std::memcpy(&summary, text.data(), sizeof(summary));
    PipelineProfile& other = profiles.emplace_back();
    other.begin = summary.begin;
    other.waiting = summary.waiting;
    other.bytes_sent = summary.bytes_sent;
    other.peak = summary.peak;
    other.actions.resize((text.size() - sizeof(summary)) / sizeof(TimedAction));
    std::memcpy(static_cast<void*>(other.actions.data()), text.data() + sizeof(summary),
                text.size() - sizeof(summary));
  }
  return profiles;
}

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
    const double offset = in_seconds(profile.begin - first);
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
