#include "trireme/cli/profile_table.h"

#include <algorithm>
#include <iterator>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/cli/console.h"

namespace trireme::cli {
namespace {

using Lines = std::vector<std::string>;

constexpr size_t kMostRanks = 8;
constexpr size_t kMostRows = 5;
constexpr size_t kNameWidth = 44;

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

double percent(int64_t part, int64_t whole) { return 100 * share(part, whole); }

// Shortens long names in the middle, because their ends distinguish them.
std::string fit(const std::string& name) {
  if (name.size() <= kNameWidth) return name;
  constexpr size_t kHalf = (kNameWidth - 3) / 2;
  return name.substr(0, kHalf) + "..." + name.substr(name.size() - kHalf);
}

void add_ranks(Lines& lines, const train::ProfileReport& report) {
  lines.push_back(
      "  rank    ms/step  computing    data  communication    (waiting)    idle  hidden");
  std::vector<train::RankTimes> ranks = report.ranks;
  if (ranks.size() > kMostRanks) {
    // The rank that waits least is the one that the others wait for.
    std::ranges::stable_sort(ranks, {}, &train::RankTimes::late_ns);
    ranks.resize(kMostRanks);
  }
  const auto num_steps = static_cast<double>(report.last_step - report.first_step + 1);
  for (const train::RankTimes& times : ranks) {
    const int64_t whole = times.steps_ns;
    lines.push_back(
        format("  %4d  %9.2f  %7.1f %%  %4.1f %%  %11.1f %%  %9.1f %%  %4.1f %%  %4.0f %%",
               times.rank, static_cast<double>(whole) / num_steps / 1e6,
               percent(times.computing_ns, whole), percent(times.data_ns, whole),
               percent(times.exposed_ns, whole), percent(times.late_ns, whole),
               percent(times.idle_ns, whole), percent(times.hidden_ns, times.communication_ns)));
  }
  if (report.ranks.size() > ranks.size()) {
    lines.push_back(concat("  ... and ", report.ranks.size() - ranks.size(),
                           " ranks that wait longer for the last rank; all are in the trace"));
  }
}

// `times`: the number of steps in the totals, counted for each rank.
void add_calls(Lines& lines, const train::ProfileReport& report, double times) {
  if (report.calls.empty()) {
    if (report.ranks.size() > 1) {
      lines.push_back("  calls are not recorded: only waits for background ones are known");
    }
    return;
  }
  lines.push_back(format("  %-44s  %7s  %10s  %9s  %9s  %6s", "calls (per step and rank)", "number",
                         "bytes each", "ms", "waiting", "GB/s"));
  for (size_t i = 0; i < std::min(kMostRows, report.calls.size()); ++i) {
    const train::CallTotals& total = report.calls[i];
    const std::string name =
        concat(total.operation, " of ", total.group, total.is_background ? ", background" : "");
    lines.push_back(format(
        "  %-44s  %7.1f  %10s  %9.3f  %9.3f  %6.2f", fit(name).c_str(),
        static_cast<double>(total.count) / times,
        human_bytes(static_cast<double>(total.bytes) / static_cast<double>(total.count)).c_str(),
        static_cast<double>(total.time_ns) / times / 1e6,
        static_cast<double>(total.wait_ns) / times / 1e6, total.bytes_per_second() / 1e9));
  }
}

void add_operators(Lines& lines, const train::ProfileReport& report, double times) {
  int64_t computing_ns = 0;
  for (const train::RankTimes& rank : report.ranks) computing_ns += rank.computing_ns;
  lines.push_back(format("  %-44s  %7s  %10s  %9s  %9s", "operators (per step and rank)", "number",
                         "computing", "ms", "GFLOP/s"));
  for (size_t i = 0; i < std::min(kMostRows, report.operators.size()); ++i) {
    const train::OperatorTotals& total = report.operators[i];
    const std::string speed =
        total.flops == 0 ? "" : format("  %9.1f", share(total.flops, total.own_ns));
    lines.push_back(format("  %-44s  %7.1f  %8.1f %%  %9.3f%s", fit(total.name).c_str(),
                           static_cast<double>(total.count) / times,
                           percent(total.own_ns, computing_ns),
                           static_cast<double>(total.own_ns) / times / 1e6, speed.c_str()));
  }
}

void add_pipeline(Lines& lines, const train::ProfileReport& report) {
  const train::PipelineSummary& pipeline = *report.pipeline;
  const std::string several =
      pipeline.num_pipelines > 1 ? concat(", mean of ", pipeline.num_pipelines, " pipelines") : "";
  lines.push_back(concat("pipeline ", pipeline.schedule.name, ", ",
                         pipeline.schedule.num_microbatches, " microbatches per step", several));
  const Lines table = pipeline_table(pipeline.schedule, pipeline.times, pipeline.moving);
  lines.insert(lines.end(), table.begin(), table.end());
  lines.push_back(concat("  step ", report.last_step, " drawn in ", pipeline.drawing.string()));
}

}  // namespace

std::vector<std::string> profile_table(const train::ProfileReport& report) {
  Lines lines;
  std::string title = concat("profile steps ", report.first_step, " to ", report.last_step);
  if (report.slowdown > 0) {
    title += format(", %.2f times as long as those before", report.slowdown);
  }
  lines.push_back(title);
  const auto times =
      static_cast<double>((report.last_step - report.first_step + 1) * std::ssize(report.ranks));
  add_ranks(lines, report);
  add_calls(lines, report, times);
  add_operators(lines, report, times);
  if (report.num_lost_calls > 0) {
    lines.push_back(concat("  ", report.num_lost_calls,
                           " calls were too many to be recorded: profile fewer steps"));
  }
  // Without recorded calls, only what was not hidden is known.
  if (!report.calls.empty() || report.hidden_fraction() > 0) {
    lines.push_back(format("  hidden behind computing: %.0f %% of the communication",
                           100 * report.hidden_fraction()));
  }
  lines.push_back(concat("  bound by ", name_of(report.bound), ": ", report.reason));
  lines.push_back(
      concat("  trace ", report.trace.string(), ", open it at https://ui.perfetto.dev"));
  if (report.pipeline) add_pipeline(lines, report);
  return lines;
}

std::vector<std::string> pipeline_table(const parallel::Schedule& schedule,
                                        const parallel::PipelineTimes& times,
                                        const std::vector<double>& moving) {
  std::vector<std::string> lines;
  lines.push_back(format("  %5s  %4s  %9s  %10s  %11s  %10s  %9s", "stage", "rank", "computing",
                         "forward ms", "backward ms", "waiting ms", "moving ms"));
  for (size_t stage = 0; stage < times.stages.size(); ++stage) {
    const int place = schedule.rank_of_stage[stage];
    const auto rank = static_cast<size_t>(place);
    const parallel::StageCosts& costs = times.stages[stage];
    std::string line = format("  %5zu  %4d  %7.1f %%  %10.3f  %11.3f", stage, place,
                              100 * times.stage_shares[stage], 1e3 * costs.forward,
                              1e3 * (costs.backward_input + costs.backward_weight));
    // Once per rank, however many stages it has.
    if (schedule.chunk_of(static_cast<int>(stage)) == 0) {
      line += format("  %10.3f", 1e3 * times.waiting[rank]);
      line += moving.empty() ? format("  %9s", "-") : format("  %9.3f", 1e3 * moving[rank]);
    }
    lines.push_back(std::move(line));
  }
  lines.push_back(
      "  forward and backward of a microbatch; waiting and moving of a rank's whole step");
  lines.push_back(
      format("  bubble %.1f %%; of the schedule with these times %.1f %%, with even stages %.1f %%",
             100 * times.bubble, 100 * times.schedule_bubble, 100 * times.even_bubble));
  return lines;
}

}  // namespace trireme::cli
