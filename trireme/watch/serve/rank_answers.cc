#include "trireme/watch/serve/rank_answers.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/numbers.h"
#include "trireme/comm/recorder/diagnosis.h"
#include "trireme/watch/run/straggler.h"
#include "trireme/watch/serve/answers.h"

namespace trireme::watch {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kAnyStep = std::numeric_limits<int64_t>::max() - 1;
constexpr int64_t kMostWaits = 4096;
constexpr int64_t kMostCalls = 4096;  // of each rank
constexpr int64_t kMostCallsInAll = 1 << 18;

double call_seconds(comm::WallTime time) { return in_seconds(time.time_since_epoch()); }

// With no more digits than the float has: 0.1 and not 0.10000000149011612.
double short_number(float value) {
  if (!std::isfinite(value)) return value;
  char text[32];
  const auto written = std::to_chars(std::begin(text), std::end(text), value);
  double number = value;
  std::from_chars(text, written.ptr, number);
  return number;
}

ordered_json or_null(std::optional<double> value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

int64_t bytes_of(const comm::Record& record) {
  constexpr int64_t kUnknown = -1;
  int64_t elements = record.elements;
  if (elements < 0 && record.num_dims == static_cast<int>(record.shape.size())) {
    elements = 1;
    for (const int64_t length : record.shape) {
      if (length < 0 || (length > 0 && elements > (int64_t{1} << 50) / length)) return kUnknown;
      elements *= length;
    }
  }
  if (elements < 0 || elements > int64_t{1} << 50) return kUnknown;
  // By c10::ScalarType: uint8 int8 int16 int32 int64 half float double, three complex, bool, ...
  constexpr int kBytes[] = {1, 1, 2, 4, 8, 2, 4, 8, 4, 8, 16, 1, 1, 1, 4, 2};
  if (record.dtype < 0 || record.dtype >= static_cast<int>(std::size(kBytes))) return kUnknown;
  return elements * kBytes[record.dtype];
}

ordered_json call_json(const comm::Ring& ring, const comm::Record& record) {
  const bool has_ended = record.state >= comm::CallState::kDone;
  const bool has_group = record.group >= 0 && record.group < static_cast<int>(ring.groups.size());
  const int64_t num_bytes = bytes_of(record);
  ordered_json call = {{"sequence", record.sequence},
                       {"name", record.operation},
                       {"group", has_group ? ring.groups[record.group].name : ""},
                       {"begin", call_seconds(record.issued)},
                       {"end", has_ended ? ordered_json(call_seconds(record.ended)) : nullptr},
                       {"bytes", num_bytes >= 0 ? ordered_json(num_bytes) : nullptr}};
  if (record.state == comm::CallState::kFailed) call["failed"] = true;
  if (record.peer >= 0) call["peer"] = record.peer;
  return call;
}

}  // namespace

ordered_json ranks_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const auto column = parameters.text("column").value_or("own_seconds");
  const int64_t step = parameters.whole("step", kAnyStep, 0, kAnyStep);
  const auto values = run.series().ranks().values_at(column, step);
  ordered_json answer = {{"step", nullptr},
                         {"values", ordered_json::array()},
                         {"median_by_stage", ordered_json::array()}};
  if (!values) return answer;
  answer["step"] = values->step;
  for (const float value : values->values) answer["values"].push_back(short_number(value));
  const auto stages = stages_of(run.axes(), static_cast<int64_t>(values->values.size()));
  for (const double middle : stage_medians(values->values, stages))
    answer["median_by_stage"].push_back(short_number(static_cast<float>(middle)));
  return answer;
}

ordered_json waits_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const int64_t from = parameters.whole("from", 0, 0, kAnyStep);
  const int64_t to = parameters.whole("to", kAnyStep, 0, kAnyStep);
  const WaitTotals& waits = run.series().waits();
  ordered_json entries = ordered_json::array();
  for (const WaitTotal& total : waits.between(from, to, kMostWaits)) {
    entries.push_back({{"axis", total.axis},
                       {"waiter", total.waiter},
                       {"awaited", total.awaited},
                       {"seconds", total.seconds}});
  }
  return {{"axes", waits.axes()}, {"ranks", run.num_ranks()}, {"entries", std::move(entries)}};
}

ordered_json straggler_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const int64_t num_ranks = run.num_ranks();
  const int64_t rank = parameters.whole("rank", 0, 0, num_ranks - 1);
  const int64_t step = parameters.whole("step", kAnyStep, 0, kAnyStep);
  const auto found =
      without_rank(run.series().ranks(), stages_of(run.axes(), num_ranks), rank, step);
  const std::string speed = speed_column(run.metrics());
  const std::string unit =
      speed.empty() ? "" : speed.substr(0, speed.size() - std::string("_per_second").size());
  ordered_json answer = {
      {"rank", rank}, {"step_seconds", nullptr},     {"without", nullptr},
      {"unit", unit}, {"units_per_second", nullptr}, {"without_units_per_second", nullptr},
      {"steps", 0},   {"how", kWithoutRankFormula}};
  if (!found) return answer;
  answer["step_seconds"] = found->step_seconds;
  answer["without"] = found->without;
  answer["steps"] = found->num_steps;
  const std::vector<double> speeds = run.metrics().finite_before(
      speed, run.metrics().num_rows(), static_cast<size_t>(found->num_steps));
  if (!speeds.empty() && found->without > 0) {
    const double usual = median(speeds);
    answer["units_per_second"] = usual;
    answer["without_units_per_second"] = usual * found->step_seconds / found->without;
  }
  return answer;
}

ordered_json calls_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const Observation& observation = run.observation();
  ordered_json answer = {{"ranks", ordered_json::array()}, {"findings", ordered_json::array()}};
  const auto num_ranks = std::max<int64_t>(1, static_cast<int64_t>(observation.ranks.size()));
  const int64_t share = std::max<int64_t>(1, std::min(kMostCalls, kMostCallsInAll / num_ranks));
  const int64_t most = parameters.whole("most", share, 1, kMostCalls);
  double newest = 0;
  for (const comm::ObservedRank& rank : observation.ranks) {
    const comm::Ring& ring = rank.ring;
    const auto count = std::min(ring.records.size(), static_cast<size_t>(std::min(most, share)));
    ordered_json calls = ordered_json::array();
    for (size_t i = ring.records.size() - count; i < ring.records.size(); ++i) {
      calls.push_back(call_json(ring, ring.records[i]));
      newest =
          std::max(newest, call_seconds(std::max(ring.records[i].issued, ring.records[i].ended)));
    }
    answer["ranks"].push_back({{"rank", ring.rank},
                               {"host", ring.host},
                               {"process", comm::process_word(rank)},
                               {"calls", std::move(calls)}});
  }
  // Findings tell what was so when the rings were read; of a dead run, at its last call.
  for (const comm::Finding& finding : observation.findings) {
    answer["findings"].push_back({{"time", newest > 0 ? or_null(newest) : nullptr},
                                  {"text", finding.text},
                                  {"ranks", finding.ranks}});
  }
  return answer;
}

}  // namespace trireme::watch
