#include "trireme/train/profile/pipeline_summary.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"
#include "trireme/train/profile/time_set.h"

namespace trireme::train {
namespace {

// One list per pipeline, in the order of its ranks.
using Pipelines = std::vector<std::vector<const RankProfile*>>;

Pipelines pipelines_of(const std::vector<RankProfile>& ranks, int num_ranks) {
  Pipelines pipelines(ranks.size() / static_cast<size_t>(num_ranks));
  for (int place = 0; place < num_ranks; ++place) {
    size_t next = 0;
    for (const RankProfile& rank : ranks) {
      if (rank.pipeline_rank == place) pipelines.at(next++).push_back(&rank);
    }
    TRIREME_ASSERT(next == pipelines.size(), next, " ranks at place ", place, " of ",
                   pipelines.size(), " pipelines");
  }
  return pipelines;
}

std::vector<parallel::PipelineProfile> run_of(const std::vector<const RankProfile*>& pipeline,
                                              size_t step) {
  std::vector<parallel::PipelineProfile> run;
  for (const RankProfile* rank : pipeline) run.push_back(rank->pipeline_runs.at(step));
  return run;
}

// The call's group if it is a send or recv between the stages of a pipeline of `num_ranks`, else
// null. In a hierarchical group, calls on the groups that it joins are not recorded, and groups
// within a host are smaller.
const GroupOfRanks* pipeline_group(const RankProfile& rank, const CallSpan& call, int num_ranks) {
  if (!call.is_point_to_point || call.group < 0) return nullptr;
  const GroupOfRanks& group = rank.groups.at(static_cast<size_t>(call.group));
  return group.name == "pipeline" && std::ssize(group.world_ranks) == num_ranks ? &group : nullptr;
}

// The times when data moved to each rank. A message moves from when both ends are there. Messages
// with the same sender, receiver and tag are received in the order in which they are sent.
std::vector<TimeSet> moving_times(const std::vector<const RankProfile*>& pipeline) {
  const auto num_ranks = static_cast<int>(pipeline.size());
  std::map<std::tuple<int, int, int>, std::deque<int64_t>> sent_ns;  // sender, receiver, tag
  for (const RankProfile* rank : pipeline) {
    for (const CallSpan& call : rank->calls) {
      if (pipeline_group(*rank, call, num_ranks) == nullptr || call.operation != "send") continue;
      sent_ns[{rank->pipeline_rank, call.peer, call.tag}].push_back(call.time.begin_ns);
    }
  }
  std::vector<TimeSet> times;
  for (const RankProfile* rank : pipeline) {
    std::vector<Span> spans;
    for (const CallSpan& call : rank->calls) {
      if (pipeline_group(*rank, call, num_ranks) == nullptr || call.operation != "recv") continue;
      std::deque<int64_t>& sends = sent_ns[{call.peer, rank->pipeline_rank, call.tag}];
      if (sends.empty()) continue;  // the recorder has lost the send
      spans.push_back({std::max(call.time.begin_ns, sends.front()), call.time.end_ns});
      sends.pop_front();
    }
    times.emplace_back(std::move(spans));
  }
  return times;
}

bool has_recorded(const RankProfile& rank, int num_ranks) {
  return rank.num_lost_calls == 0 && std::ranges::any_of(rank.calls, [&](const CallSpan& call) {
           return pipeline_group(rank, call, num_ranks) != nullptr;
         });
}

}  // namespace

PipelineSummary summarize_pipeline(const std::vector<RankProfile>& ranks,
                                   const parallel::Schedule& schedule) {
  const int num_ranks = schedule.num_ranks();
  const Pipelines pipelines = pipelines_of(ranks, num_ranks);
  PipelineSummary summary{.schedule = schedule,
                          .num_pipelines = static_cast<int>(pipelines.size())};
  std::vector<std::vector<parallel::PipelineProfile>> runs;
  for (const auto& pipeline : pipelines) {
    for (size_t step = 0; step < pipeline[0]->pipeline_runs.size(); ++step) {
      runs.push_back(run_of(pipeline, step));
    }
  }
  summary.times = parallel::pipeline_times(schedule, runs);
  summary.last_run =
      measured_timeline(run_of(pipelines[0], pipelines[0][0]->pipeline_runs.size() - 1));
  const bool is_recorded = std::ranges::all_of(
      ranks, [&](const RankProfile& rank) { return has_recorded(rank, num_ranks); });
  if (!is_recorded) return summary;
  summary.moving.assign(static_cast<size_t>(num_ranks), 0);
  for (const auto& pipeline : pipelines) {
    const std::vector<TimeSet> times = moving_times(pipeline);
    for (size_t rank = 0; rank < times.size(); ++rank) {
      summary.moving[rank] +=
          static_cast<double>(times[rank].total_ns()) / 1e9 / static_cast<double>(runs.size());
    }
  }
  return summary;
}

std::string draw(const PipelineSummary& summary) {
  const std::string title =
      concat(summary.schedule.name, ", ", summary.schedule.num_stages(), " stages, ",
             summary.schedule.num_microbatches, " microbatches, measured");
  return draw_svg(summary.schedule, summary.last_run.scaled(1e3), {.title = title, .unit = "ms"});
}

}  // namespace trireme::train
