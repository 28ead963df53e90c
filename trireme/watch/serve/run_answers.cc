#include "trireme/watch/serve/run_answers.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <deque>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/launch/journal/log_reader.h"
#include "trireme/watch/run/crash_words.h"
#include "trireme/watch/run/run_facts.h"
#include "trireme/watch/run/run_notes.h"
#include "trireme/watch/serve/answers.h"
#include "trireme/watch/serve/meanings.h"
#include "trireme/watch/serve/run_summary.h"

namespace trireme::watch {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostScalars = 5000;
constexpr size_t kMostComparedRuns = 64;
constexpr size_t kMostRanksOfMap = 1 << 15;
constexpr int64_t kMostEventsAsked = 10'000;
constexpr int64_t kMostLinesAsked = 5000;
constexpr size_t kMostLinesRead = 500'000;
constexpr double kLogSeconds = 120;  // around the time that is asked for

double seconds_of(launch::WallTime time) { return in_seconds(time.time_since_epoch()); }

launch::WallTime time_of(double seconds) {
  constexpr double kLongest = 9e9;  // beyond any clock
  return launch::WallTime(std::chrono::duration_cast<launch::WallTime::duration>(
      std::chrono::duration<double>(std::clamp(seconds, 0.0, kLongest))));
}

ordered_json last_value(const MetricColumns& metrics, std::string_view name) {
  const auto last = metrics.last(name);
  return last ? ordered_json(last->second) : ordered_json(nullptr);
}

// The time between the first and the last step.
double run_seconds(const MetricColumns& metrics) {
  if (metrics.num_rows() == 0) return 0;
  const double first = metrics.value("time", 0);
  const double last = metrics.value("time", metrics.num_rows() - 1);
  const double before = metrics.value("step_seconds", 0);
  const double seconds = last - first + (std::isfinite(before) ? before : 0);
  return std::isfinite(seconds) ? std::max(0.0, seconds) : 0;
}

ordered_json row_of_list(RunList& runs, size_t index) {
  WatchedRun& run = runs.run(index);
  const MetricColumns& metrics = run.metrics();
  const std::string speed = speed_column(metrics);
  const auto steps = run.config().whole("train.steps");
  return {{"run", index},
          {"name", runs.name(index)},
          {"folder", run.folder().string()},
          {"state", name_of(kRunStates, run.verdict().state)},
          {"why", run.verdict().why},
          {"step", run.last_step()},
          {"steps", steps ? ordered_json(*steps) : ordered_json(nullptr)},
          {"loss", last_value(metrics, "loss")},
          {"units_per_second", last_value(metrics, speed)},
          {"unit", speed.empty() ? "" : speed.substr(0, speed.rfind("_per_second"))},
          {"time", last_value(metrics, "time")},
          {"seconds", run_seconds(metrics)}};
}

ordered_json scalars_of(const WatchedRun& run) {
  ordered_json scalars = ordered_json::array();
  for (const std::string& name : run.metrics().names()) {
    if (scalars.size() == kMostScalars) break;
    scalars.push_back({{"name", name}, {"unit", unit_of(name)}, {"meaning", meaning_of(name)}});
  }
  return scalars;
}

ordered_json goodput_json(const Goodput& goodput) {
  ordered_json spans = ordered_json::array();
  for (const TimeSpan& span : goodput.spans)
    spans.push_back({{"from", span.from}, {"to", span.to}, {"cause", span.cause}});
  return {{"share", goodput.share ? ordered_json(*goodput.share) : ordered_json(nullptr)},
          {"spans", std::move(spans)}};
}

ordered_json alerts_json(const std::vector<Alert>& alerts) {
  ordered_json list = ordered_json::array();
  for (const Alert& alert : alerts) {
    list.push_back({{"time", alert.time > 0 ? ordered_json(alert.time) : ordered_json(nullptr)},
                    {"step", alert.step},
                    {"kind", alert.kind},
                    {"text", alert.text}});
  }
  return list;
}

ordered_json predicted_json(const WatchedRun& run) {
  const Prediction prediction = read_prediction(run.folder());
  return prediction.empty() ? ordered_json(nullptr) : ordered_json(prediction);
}

ordered_json event_json(const launch::Event& event) {
  ordered_json object = {{"time", seconds_of(event.time)},
                         {"epoch", event.epoch},
                         {"step", event.step >= 0 ? ordered_json(event.step) : nullptr},
                         {"event", name_of(launch::kEventKinds, event.kind)},
                         {"host", event.host},
                         {"rank", event.rank >= 0 ? ordered_json(event.rank) : nullptr},
                         {"cause", event.cause},
                         {"text", event.text}};
  if (event.seconds > 0) object["seconds"] = event.seconds;
  return object;
}

ordered_json crash_json(WatchedRun& run) {
  const RunState state = run.verdict().state;
  if (state != RunState::kCrashed && state != RunState::kStalled) return nullptr;
  const auto& saved = run.checkpoints();
  const Observation& observation = run.observation();
  const CrashWords words =
      crash_words({.ranks = observation.ranks,
                   .findings = observation.findings,
                   .events = run.events(),
                   .metrics = run.metrics(),
                   .saved_step = saved.empty() ? std::nullopt : std::optional(saved.back().step),
                   .is_over = state == RunState::kCrashed});
  return {{"rank", words.rank}, {"call", words.call}, {"lost", words.lost}};
}

// When the run last wrote something that has a time.
std::optional<double> newest_time(WatchedRun& run) {
  double newest = 0;
  if (const auto last = run.metrics().last("time"); last && std::isfinite(last->second))
    newest = last->second;
  for (const launch::Event& event : run.events().events)
    newest = std::max(newest, seconds_of(event.time));
  return newest > 0 ? std::optional(newest) : std::nullopt;
}

struct LogLines {
  std::deque<launch::LogEntry> entries{};  // around the time, or the last
  bool is_cut = false;                     // there are more lines than were read
};

LogLines read_lines(const std::filesystem::path& folder, const launch::LogFilter& filter,
                    std::optional<double> time, size_t most) {
  LogLines lines;
  std::deque<launch::LogEntry>& entries = lines.entries;
  size_t num_behind = 0;  // the time
  launch::LogReader reader(folder, filter);
  for (size_t count = 0;; ++count) {
    lines.is_cut = count == kMostLinesRead;
    if (lines.is_cut) break;
    auto entry = reader.next();
    if (!entry) break;
    const double at = seconds_of(entry->line.time);
    if (time && at > *time + kLogSeconds) break;
    num_behind += time && at > *time ? 1 : 0;
    entries.push_back(std::move(*entry));
    if (entries.size() > most) entries.pop_front();
    // Half of the lines come from before the time, half from behind it.
    if (time && num_behind >= (most + 1) / 2 && entries.size() >= most) break;
  }
  return lines;
}

}  // namespace

ordered_json runs_answer(RunList& runs, const Parameters&) {
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < runs.size(); ++i) list.push_back(row_of_list(runs, i));
  return {{"runs", std::move(list)}};
}

ordered_json run_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const MetricColumns& metrics = run.metrics();
  const auto index = static_cast<size_t>(parameters.whole("run", 0, 0, INT64_MAX));
  const int64_t num_ranks = run.num_ranks();
  ordered_json axes = ordered_json::array();
  for (const AxisSize& axis : run.axes())
    axes.push_back({{"name", axis.name}, {"size", axis.size}});
  ordered_json roles = ordered_json::array();
  for (const RankRole& role : roles_of(run.config(), run.axes()))
    roles.push_back({{"name", role.name}, {"first", role.first}, {"count", role.count}});
  ordered_json findings = ordered_json::array();
  for (const comm::Finding& finding : run.observation().findings) {
    findings.push_back(
        {{"kind", comm::name_of(finding.kind)}, {"text", finding.text}, {"ranks", finding.ranks}});
  }
  ordered_json checkpoints = ordered_json::array();
  for (const SavedCheckpoint& saved : run.checkpoints())
    checkpoints.push_back({{"step", saved.step}, {"time", saved.time}});
  const std::string version = version_of(read_run_facts(run.folder() / kRunFactsFile));
  const auto steps = run.config().whole("train.steps");
  const bool has_rows = metrics.num_rows() > 0;
  return {
      {"run", index},
      {"name", runs.name(index)},
      {"folder", run.folder().string()},
      {"state", name_of(kRunStates, run.verdict().state)},
      {"why", run.verdict().why},
      {"crash", crash_json(run)},
      {"config", run.config().text},
      {"config_problem", run.config().problem},
      {"version", version.empty() ? ordered_json(nullptr) : ordered_json(version)},
      {"ranks", num_ranks},
      {"axes", std::move(axes)},
      {"coordinates", coordinates_of(run.axes(), std::min<int64_t>(num_ranks, kMostRanksOfMap))},
      {"roles", std::move(roles)},
      {"first_step", has_rows ? ordered_json(metrics.step_at(0)) : ordered_json(nullptr)},
      {"last_step", has_rows ? ordered_json(run.last_step()) : ordered_json(nullptr)},
      {"steps", steps ? ordered_json(*steps) : ordered_json(nullptr)},
      {"unreadable_lines", run.num_unreadable()},
      {"scalars", scalars_of(run)},
      {"rank_columns", run.series().ranks().columns()},
      {"goodput", goodput_json(run.goodput())},
      {"alerts", alerts_json(run.alerts())},
      {"findings", std::move(findings)},
      {"predicted", predicted_json(run)},
      {"checkpoints", std::move(checkpoints)},
      {"summary", run_summary(run)}};
}

ordered_json compare_answer(RunList& runs, const Parameters& parameters) {
  const std::string text = parameters.text("runs").value_or("");
  std::vector<size_t> indexes;
  std::vector<const RunConfig*> configs;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    size_t index = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), index);
    TRIREME_CHECK(error == std::errc() && end == word.data() + word.size() && index < runs.size() &&
                      indexes.size() < kMostComparedRuns,
                  "runs is ", shown(text), "; expected up to ", kMostComparedRuns,
                  " indexes below ", runs.size(), ", such as 0,1");
    indexes.push_back(index);
    configs.push_back(&runs.run(index).config());
  }
  ordered_json differences = ordered_json::array();
  for (const ConfigDifference& each : differences_of(configs))
    differences.push_back({{"key", each.key}, {"values", each.values}});
  return {{"runs", indexes}, {"differences", std::move(differences)}};
}

ordered_json events_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const double from = parameters.number("from_time").value_or(0);
  const double to = parameters.number("to_time").value_or(std::numeric_limits<double>::max());
  const auto most = static_cast<size_t>(parameters.whole("most", 500, 1, kMostEventsAsked));
  std::deque<const launch::Event*> chosen;
  for (const launch::Event& event : run.events().events) {
    const double time = seconds_of(event.time);
    if (time < from || time > to) continue;
    chosen.push_back(&event);
    if (chosen.size() > most) chosen.pop_front();
  }
  ordered_json events = ordered_json::array();
  for (const launch::Event* event : chosen) events.push_back(event_json(*event));
  return {{"events", std::move(events)}};
}

ordered_json log_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const auto most = static_cast<size_t>(parameters.whole("most", 200, 1, kMostLinesAsked));
  const auto time = parameters.number("time");
  launch::LogFilter filter;
  if (parameters.text("rank")) {
    const auto rank = static_cast<int>(parameters.whole("rank", 0, 0, 1 << 20));
    filter.ranks = {{rank, rank}};
  }
  if (time) filter.since = time_of(*time - kLogSeconds);
  ordered_json answer = {{"lines", ordered_json::array()}};
  LogLines lines;
  try {
    lines = read_lines(run.folder(), filter, time, most);
    // The newest are asked for, and there are more lines than are read.
    if (const auto newest = newest_time(run); lines.is_cut && !time && newest) {
      filter.since = time_of(*newest - kLogSeconds);
      if (LogLines last = read_lines(run.folder(), filter, time, most); !last.entries.empty())
        lines = std::move(last);
    }
  } catch (const Error&) {
    return answer;  // it has no logs
  }
  for (const launch::LogEntry& entry : lines.entries) {
    answer["lines"].push_back(
        {{"time", seconds_of(entry.line.time)},
         {"step", entry.line.step >= 0 ? ordered_json(entry.line.step) : nullptr},
         {"epoch", entry.line.epoch},
         {"rank", entry.rank >= 0 ? ordered_json(entry.rank) : nullptr},
         {"level", name_of(launch::kLogLevels, entry.level)},
         {"text", entry.line.text}});
  }
  return answer;
}

}  // namespace trireme::watch
