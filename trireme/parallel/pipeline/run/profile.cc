#include "trireme/parallel/pipeline/run/profile.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/objects.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

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
  // Raw bytes: all ranks run the same program.
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
    // The cast keeps the compiler from warning: the class has default values.
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

namespace {

double bubble_of(const Schedule& schedule, std::vector<StageCosts> stages) {
  return make_timeline(schedule, {.stages = std::move(stages)}).bubble();
}

// sum += weight * term
void add(StageCosts& sum, const StageCosts& term, double weight) {
  sum.forward += weight * term.forward;
  sum.backward_input += weight * term.backward_input;
  sum.backward_weight += weight * term.backward_weight;
}

double computing_time(const PipelineProfile& profile, int stage) {
  double sum = 0;
  for (const TimedAction& timed : profile.actions) {
    if (timed.action.stage == stage) sum += timed.end - timed.start;
  }
  return sum;
}

}  // namespace

PipelineTimes pipeline_times(const Schedule& schedule,
                             std::span<const std::vector<PipelineProfile>> runs) {
  TRIREME_ASSERT(!runs.empty(), "times of no run");
  const auto num_ranks = static_cast<size_t>(schedule.num_ranks());
  const auto num_stages = static_cast<size_t>(schedule.num_stages());
  const double share = 1.0 / static_cast<double>(runs.size());
  PipelineTimes times{.stages = std::vector<StageCosts>(num_stages, {0, 0, 0}),
                      .stage_shares = std::vector<double>(num_stages),
                      .waiting = std::vector<double>(num_ranks),
                      .bytes_sent = std::vector<int64_t>(num_ranks)};
  for (const std::vector<PipelineProfile>& ranks : runs) {
    TRIREME_ASSERT(ranks.size() == num_ranks, ranks.size(), " profiles of ", num_ranks, " ranks");
    const Timeline timeline = measured_timeline(ranks);
    times.step += share * timeline.cost();
    times.bubble += share * timeline.bubble();
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      times.waiting[rank] += share * in_seconds(ranks[rank].waiting);
      times.bytes_sent[rank] += ranks[rank].bytes_sent;
    }
    for (size_t stage = 0; stage < num_stages; ++stage) {
      const auto number = static_cast<int>(stage);
      const PipelineProfile& profile = ranks[static_cast<size_t>(schedule.rank_of_stage[stage])];
      add(times.stages[stage], profile.stage_costs(number), share);
      const double whole = timeline.makespan();
      if (whole > 0) times.stage_shares[stage] += share * computing_time(profile, number) / whole;
    }
  }
  for (int64_t& bytes : times.bytes_sent) bytes /= std::ssize(runs);
  StageCosts mean{0, 0, 0};
  for (const StageCosts& stage : times.stages)
    add(mean, stage, 1.0 / static_cast<double>(num_stages));
  times.schedule_bubble = bubble_of(schedule, times.stages);
  times.even_bubble = bubble_of(schedule, {mean});
  return times;
}

}  // namespace trireme::parallel
