#include "trireme/train/profile/profile_report.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/timeline_drawing.h"
#include "trireme/train/profile/spans.h"

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

namespace {

// A part of the step at least this large bounds it: without it the step would be 1.25 times as
// fast.
constexpr double kLargeShare = 0.2;
// Starting and recording an operator takes some microseconds, which dominate in shorter operators.
constexpr int64_t kShortOperator_ns = 10'000;

// Operators of the host by their full name, kernels of a GPU by parts of their name. Attention
// counts as its products.
bool is_matrix_product(std::string_view name) {
  static constexpr std::string_view kOperators[] = {
      "mm",
      "mm_",
      "addmm",
      "addmm_",
      "bmm",
      "baddbmm",
      "baddbmm_",
      "mv",
      "addmv",
      "addmv_",
      "matmul",
      "linear",
      "mkldnn_convolution",
      "thnn_conv2d",
      "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_flash_attention_backward",
      "_scaled_dot_product_flash_attention_for_cpu",
      "_scaled_dot_product_flash_attention_for_cpu_backward"};
  static constexpr std::string_view kKernels[] = {"gemm", "gemv", "cutlass", "xmma", "flash"};
  if (name.starts_with("trireme::attention")) return true;
  if (name.starts_with("aten::")) {
    name.remove_prefix(6);
    return std::ranges::find(kOperators, name) != std::end(kOperators);
  }
  return std::ranges::any_of(
      kKernels, [&](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

RankTimes times_of(const RankProfile& rank, const RankStates& states) {
  return {.rank = rank.rank,
          .steps_ns = states.steps.total_ns(),
          .computing_ns = states.computing.total_ns(),
          .data_ns = states.data.total_ns(),
          .exposed_ns = states.exposed.total_ns(),
          .late_ns = states.late.total_ns(),
          .idle_ns = states.idle.total_ns(),
          .communication_ns = states.communication.total_ns(),
          .hidden_ns = (states.communication & states.computing).total_ns()};
}

std::vector<CallTotals> total_calls(const std::vector<RankProfile>& ranks,
                                    const std::vector<RankStates>& states) {
  const Arrivals arrivals(ranks);
  std::map<std::tuple<std::string, std::string, bool>, CallTotals> totals;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const CallSpan& call : ranks[i].calls) {
      if ((TimeSet({call.time}) & states[i].steps).total_ns() == 0) continue;
      const std::string group = call.group < 0 ? "?" : ranks[i].groups.at(call.group).name;
      CallTotals& total = totals[{call.operation, group, call.is_background}];
      total.operation = call.operation;
      total.group = group;
      total.is_background = call.is_background;
      ++total.count;
      total.bytes += call.bytes;
      total.time_ns += call.time.length_ns();
      total.wait_ns += arrivals.wait(ranks[i], call).length_ns();
    }
  }
  std::vector<CallTotals> sorted;
  for (auto& [key, total] : totals) sorted.push_back(std::move(total));
  std::ranges::stable_sort(sorted, std::greater{}, &CallTotals::time_ns);
  return sorted;
}

// The computing time of all ranks, by use.
struct Computing {
  std::vector<OperatorTotals> operators;
  int64_t products_ns = 0;
  int64_t operators_ns = 0;
  int64_t short_operators_ns = 0;
};

Computing total_operators(const std::vector<RankProfile>& ranks) {
  Computing computing;
  std::map<std::string, OperatorTotals> totals;
  for (const RankProfile& rank : ranks) {
    for (const OwnTime& time : own_times(rank)) {
      OperatorTotals& total = totals[time.name];
      total.name = time.name;
      ++total.count;
      total.own_ns += time.own_ns;
      total.flops += time.flops;
      if (!time.is_operator) continue;
      computing.operators_ns += time.own_ns;
      if (is_matrix_product(time.name)) computing.products_ns += time.own_ns;
      if (time.own_ns < kShortOperator_ns) computing.short_operators_ns += time.own_ns;
    }
  }
  for (auto& [name, total] : totals) computing.operators.push_back(std::move(total));
  std::ranges::stable_sort(computing.operators, std::greater{}, &OperatorTotals::own_ns);
  return computing;
}

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string percent(double share) { return concat(std::lround(100 * share), " %"); }

// docs/guide/profile.md explains these rules.
void decide_bound(ProfileReport& report, const Computing& computing) {
  RankTimes sum;
  for (const RankTimes& times : report.ranks) {
    sum.steps_ns += times.steps_ns;
    sum.computing_ns += times.computing_ns;
    sum.data_ns += times.data_ns;
    sum.exposed_ns += times.exposed_ns;
    sum.late_ns += times.late_ns;
    sum.idle_ns += times.idle_ns;
  }
  const double data = ratio(sum.data_ns, sum.steps_ns);
  const double exposed = ratio(sum.exposed_ns, sum.steps_ns);
  const double idle = ratio(sum.idle_ns, sum.steps_ns);
  const double largest = std::max({data, exposed, idle});
  const double products = ratio(computing.products_ns, sum.computing_ns);
  const double brief = ratio(computing.short_operators_ns, computing.operators_ns);
  const auto decide = [&](Bound bound, std::string reason) {
    report.bound = bound;
    report.reason = std::move(reason);
  };
  if (largest >= kLargeShare && largest == data) {
    decide(Bound::kData, "loading data takes " + percent(data) + " of the step");
  } else if (largest >= kLargeShare && largest == exposed) {
    std::string reason =
        "communication that nothing hides takes " + percent(exposed) + " of the step";
    if (sum.late_ns > 0) {
      reason +=
          ", " + percent(ratio(sum.late_ns, sum.exposed_ns)) + " of it waiting for the last rank";
    }
    decide(Bound::kCommunication, std::move(reason));
  } else if (largest >= kLargeShare) {
    decide(Bound::kOverhead, "nothing runs in " + percent(idle) + " of the step");
  } else if (brief > 0.5) {
    decide(Bound::kOverhead, "operators shorter than 10 us take " + percent(brief) +
                                 " of the operators' time: starting them is most of the work");
  } else if (products < 0.5) {
    decide(Bound::kMemory, "matrix products take only " + percent(products) +
                               " of the computing time, the rest moves memory");
  } else {
    decide(Bound::kComputation,
           "matrix products take " + percent(products) + " of the computing time");
  }
}

}  // namespace

const char* name_of(Bound bound) {
  switch (bound) {
    case Bound::kData: return "data";
    case Bound::kCommunication: return "communication";
    case Bound::kOverhead: return "overhead";
    case Bound::kMemory: return "memory";
    case Bound::kComputation: return "computation";
  }
  return "";
}

double CallTotals::bytes_per_second() const {
  return time_ns <= wait_ns ? 0 : 1e9 * ratio(bytes, time_ns - wait_ns);
}

double ProfileReport::hidden_fraction() const {
  int64_t hidden_ns = 0;
  int64_t communication_ns = 0;
  for (const RankTimes& times : ranks) {
    hidden_ns += times.hidden_ns;
    communication_ns += times.communication_ns;
  }
  return ratio(hidden_ns, communication_ns);
}

ProfileReport make_report(const std::vector<RankProfile>& ranks,
                          const std::vector<RankStates>& states) {
  TRIREME_ASSERT(!ranks.empty() && !ranks[0].steps.empty() && ranks.size() == states.size(),
                 "a profile of ", ranks.size(), " ranks");
  ProfileReport report;
  report.first_step = ranks[0].steps.front().step;
  report.last_step = ranks[0].steps.back().step;
  for (size_t i = 0; i < ranks.size(); ++i) {
    report.ranks.push_back(times_of(ranks[i], states[i]));
    report.num_lost_calls += ranks[i].num_lost_calls;
  }
  report.calls = total_calls(ranks, states);
  Computing computing = total_operators(ranks);
  decide_bound(report, computing);
  report.operators = std::move(computing.operators);
  return report;
}

}  // namespace trireme::train
