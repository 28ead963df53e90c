#include "trireme/train/profile/profile_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::train {

// A rank is a process of the trace and each kind of span a row of it, whose number is also its
// place, so that all ranks have the same order. Spans of one row must nest; calls that overlap get
// rows of their own. Times begin with the first step of any rank, as all spans are on one clock.
// Names of operators come from outside and may not be UTF-8, which must not prevent the trace.

namespace {

using nlohmann::json;

// A rank's rows, in the order in which they are drawn.
enum Row {
  kStateRow = 0,
  kStepRow = 1,
  kHostRow = 2,
  kPipelineRow = 999,
  kCallRow = 1000,
  kDeviceRow = 10000
};
constexpr int kStreamsPerDevice = 1000;

// Chrome's names of colours. Perfetto chooses its own.
const char* color_of(const std::string& category) {
  static const std::map<std::string, const char*> kColors = {
      {"computing", "thread_state_running"},
      {"data", "thread_state_runnable"},
      {"communication", "thread_state_iowait"},
      {"late", "terrible"},
      {"idle", "thread_state_sleeping"},
      {"step", "grey"},
      {"phase", "generic_work"},
      {"operator", "thread_state_running"},
      {"pipeline", "rail_response"},
      {"wait", "thread_state_uninterruptible"},
      {"kernel", "good"}};
  return kColors.at(category);
}

class Trace {
 public:
  explicit Trace(int64_t origin_ns) : origin_ns_(origin_ns) {}

  void add(int rank, int row, const char* category, const std::string& name, const Span& time,
           json arguments = json::object()) {
    json event = {{"ph", "X"},
                  {"pid", rank},
                  {"tid", row},
                  {"cat", category},
                  {"name", name},
                  {"ts", microseconds(time.begin_ns - origin_ns_)},
                  {"dur", microseconds(time.length_ns())},
                  {"cname", color_of(category)}};
    if (!arguments.empty()) event["args"] = std::move(arguments);
    add(event);
  }

  // `kind`: "process_name", "thread_name", ...
  void add_metadata(int rank, int row, const char* kind, json arguments) {
    add({{"ph", "M"}, {"pid", rank}, {"tid", row}, {"name", kind}, {"args", std::move(arguments)}});
  }

  void name_row(int rank, int row, const std::string& name) {
    add_metadata(rank, row, "thread_name", {{"name", name}});
    add_metadata(rank, row, "thread_sort_index", {{"sort_index", row}});
  }

  std::string finish(const json& summary) && {
    return concat("{\"displayTimeUnit\": \"ms\",\n\"otherData\": ", summary.dump(),
                  ",\n\"traceEvents\": [\n", events_, "\n]}\n");
  }

 private:
  static double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

  void add(const json& event) {
    if (!events_.empty()) events_ += ",\n";
    // A name that is not UTF-8 must not prevent the trace.
    events_ += event.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  int64_t origin_ns_;
  std::string events_;
};

void add_states(Trace& trace, int rank, const RankStates& states) {
  trace.name_row(rank, kStateRow, "state");
  for (const auto& [category, name, times] :
       {std::tuple{"computing", "computing", states.computing},
        std::tuple{"data", "loading data", states.data},
        std::tuple{"communication", "communication", states.exposed - states.late},
        std::tuple{"late", "waiting for the last rank", states.late},
        std::tuple{"idle", "idle", states.idle}}) {
    for (const Span& span : times.spans()) trace.add(rank, kStateRow, category, name, span);
  }
}

void add_steps(Trace& trace, const RankProfile& rank) {
  trace.name_row(rank.rank, kStepRow, "steps");
  for (const StepSpan& step : rank.steps) {
    trace.add(rank.rank, kStepRow, "step", concat("step ", step.step), step.time,
              {{"step", step.step}});
  }
  for (const PhaseSpan& phase : rank.phases) {
    trace.add(rank.rank, kStepRow, "phase", name_of(phase.phase), phase.time);
  }
}

void add_operators(Trace& trace, const RankProfile& rank) {
  std::map<int, std::string> rows;
  for (const OperatorSpan& found : rank.operators) {
    const bool is_kernel = found.device >= 0;
    const int row =
        is_kernel ? kDeviceRow + found.device * kStreamsPerDevice + found.thread % kStreamsPerDevice
                  : kHostRow + std::min(found.thread, kPipelineRow - kHostRow - 1);
    rows[row] = is_kernel           ? concat("GPU ", found.device, " stream ", found.thread)
                : found.thread == 0 ? "operators"
                                    : concat("operators of thread ", found.thread);
    const char* category = is_kernel                             ? "kernel"
                           : found.name.starts_with("trireme::") ? "wait"
                                                                 : "operator";
    json arguments = json::object();
    if (found.flops > 0) arguments["flops"] = found.flops;
    trace.add(rank.rank, row, category, found.name, found.time, std::move(arguments));
  }
  for (const auto& [row, name] : rows) trace.name_row(rank.rank, row, name);
}

// Adds what the rank computed of its schedule.
void add_pipeline(Trace& trace, const RankProfile& rank) {
  if (!rank.pipeline_runs.empty()) trace.name_row(rank.rank, kPipelineRow, "pipeline");
  for (const parallel::PipelineProfile& run : rank.pipeline_runs) {
    const auto ns_at = [&run](double seconds) {
      return std::chrono::nanoseconds(run.begin.time_since_epoch()).count() +
             std::llround(1e9 * seconds);
    };
    for (const parallel::TimedAction& timed : run.actions) {
      trace.add(rank.rank, kPipelineRow, "pipeline", to_string(timed.action),
                {ns_at(timed.start), ns_at(timed.end)},
                {{"stage", timed.action.stage}, {"microbatch", timed.action.microbatch}});
    }
  }
}

// Calls that overlap get separate rows, because slices of one row must nest.
void add_calls(Trace& trace, const RankProfile& rank, const Arrivals& arrivals) {
  std::vector<const CallSpan*> calls;
  for (const CallSpan& call : rank.calls) calls.push_back(&call);
  std::ranges::stable_sort(calls, {}, [](const CallSpan* call) { return call->time.begin_ns; });
  std::vector<std::pair<bool, int64_t>> rows;  // background or not, busy until
  for (const CallSpan* call : calls) {
    auto row = std::ranges::find_if(rows, [&](const auto& other) {
      return other.first == call->is_background && other.second <= call->time.begin_ns;
    });
    if (row == rows.end()) {
      const int number = kCallRow + static_cast<int>(rows.size());
      trace.name_row(rank.rank, number,
                     call->is_background ? "communication in the background" : "communication");
      row = rows.insert(rows.end(), {call->is_background, 0});
    }
    row->second = call->time.end_ns;
    json arguments = {
        {"group", call->group < 0 ? "?" : rank.groups.at(call->group).name},
        {"sequence", call->sequence},
        {"bytes", call->bytes},
        {"queued_us", static_cast<double>(call->time.begin_ns - call->issued_ns) / 1000},
        {"wait_us", static_cast<double>(arrivals.wait(rank, *call).length_ns()) / 1000},
        {"background", call->is_background}};
    trace.add(rank.rank, kCallRow + static_cast<int>(row - rows.begin()), "communication",
              call->operation, call->time, std::move(arguments));
  }
}

json json_of(const PipelineSummary& pipeline) {
  const parallel::PipelineTimes& times = pipeline.times;
  json stages = json::array();
  for (size_t stage = 0; stage < times.stages.size(); ++stage) {
    stages.push_back({{"stage", stage},
                      {"rank", pipeline.schedule.rank_of_stage[stage]},
                      {"computing_share", times.stage_shares[stage]},
                      {"forward_seconds", times.stages[stage].forward},
                      {"backward_input_seconds", times.stages[stage].backward_input},
                      {"backward_weight_seconds", times.stages[stage].backward_weight}});
  }
  json ranks = json::array();
  for (size_t rank = 0; rank < times.waiting.size(); ++rank) {
    ranks.push_back({{"rank", rank},
                     {"waiting_seconds", times.waiting[rank]},
                     {"bytes_sent", times.bytes_sent[rank]}});
    if (!pipeline.moving.empty()) ranks.back()["moving_seconds"] = pipeline.moving[rank];
  }
  return {{"schedule", pipeline.schedule.name},
          {"microbatches", pipeline.schedule.num_microbatches},
          {"pipelines", pipeline.num_pipelines},
          {"run_seconds", times.step},
          {"bubble", times.bubble},
          {"schedule_bubble", times.schedule_bubble},
          {"even_bubble", times.even_bubble},
          {"stages", stages},
          {"ranks", ranks}};
}

json summary_of(const ProfileReport& report) {
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) / 1e9; };
  json ranks = json::array();
  for (const RankTimes& times : report.ranks) {
    ranks.push_back({{"rank", times.rank},
                     {"steps_seconds", seconds(times.steps_ns)},
                     {"computing_seconds", seconds(times.computing_ns)},
                     {"data_seconds", seconds(times.data_ns)},
                     {"exposed_seconds", seconds(times.exposed_ns)},
                     {"late_seconds", seconds(times.late_ns)},
                     {"idle_seconds", seconds(times.idle_ns)},
                     {"communication_seconds", seconds(times.communication_ns)},
                     {"hidden_seconds", seconds(times.hidden_ns)}});
  }
  json summary = {{"first_step", report.first_step},
                  {"last_step", report.last_step},
                  {"bound", name_of(report.bound)},
                  {"reason", report.reason},
                  {"hidden_fraction", report.hidden_fraction()},
                  {"num_lost_calls", report.num_lost_calls},
                  {"ranks", ranks}};
  if (report.pipeline) summary["pipeline"] = json_of(*report.pipeline);
  return summary;
}

}  // namespace

std::string chrome_trace(const std::vector<RankProfile>& ranks,
                         const std::vector<RankStates>& states, const ProfileReport& report) {
  int64_t origin_ns = std::numeric_limits<int64_t>::max();
  for (const RankProfile& rank : ranks) {
    for (const StepSpan& step : rank.steps) origin_ns = std::min(origin_ns, step.time.begin_ns);
  }
  const Arrivals arrivals(ranks);
  Trace trace(origin_ns);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const RankProfile& rank = ranks[i];
    trace.add_metadata(rank.rank, 0, "process_name",
                       {{"name", concat("rank ", rank.rank, " on ", rank.host)}});
    trace.add_metadata(rank.rank, 0, "process_sort_index", {{"sort_index", rank.rank}});
    add_states(trace, rank.rank, states[i]);
    add_steps(trace, rank);
    add_operators(trace, rank);
    add_pipeline(trace, rank);
    add_calls(trace, rank, arrivals);
  }
  return std::move(trace).finish(summary_of(report));
}

}  // namespace trireme::train
