#include "trireme/parallel/pipeline/run/pipeline_times.h"

#include "trireme/base/error.h"
#include "trireme/base/seconds.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {
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
