#include "trireme/watch/serve/series_answers.h"

#include <charconv>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/watch/serve/answers.h"
#include "trireme/watch/serve/meanings.h"

namespace trireme::watch {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostPoints = 4000;
constexpr size_t kMostNames = 128;
constexpr int64_t kMostStep = std::numeric_limits<int64_t>::max() - 1;

// "rank/12/own_seconds" -> 12, "own_seconds".
std::optional<std::pair<int64_t, std::string_view>> rank_column(std::string_view name) {
  constexpr std::string_view kPrefix = "rank/";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  int64_t rank = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (error != std::errc() || end == name.data() + name.size() || *end != '/' || rank < 0)
    return std::nullopt;
  return std::pair(rank, name.substr(static_cast<size_t>(end - name.data()) + 1));
}

std::optional<Points> points_of(const WatchedRun& run, std::string_view name,
                                const PointsRequest& request) {
  constexpr std::string_view kAllRanks = "ranks/";
  const RankBlocks& ranks = run.series().ranks();
  if (name.starts_with(kAllRanks))
    return ranks.points(name.substr(kAllRanks.size()), std::nullopt, request);
  if (const auto rank = rank_column(name)) return ranks.points(rank->second, rank->first, request);
  return run.metrics().points(name, request);
}

ordered_json one_series(const WatchedRun& run, const std::string& name,
                        const PointsRequest& request) {
  ordered_json answer = {{"name", name}, {"unit", unit_of(name)}};
  const Points points = points_of(run, name, request).value_or(Points());
  answer["from"] = request.from;
  answer["to"] = std::min(request.to, run.last_step());
  answer["count"] = points.count;
  answer["steps"] = points.steps;
  answer["min"] = points.min;
  answer["max"] = points.max;
  answer["mean"] = points.mean;
  return answer;
}

}  // namespace

ordered_json series_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const std::vector<std::string> names = parameters.texts("name");
  TRIREME_CHECK(!names.empty() && names.size() <= kMostNames, "the query has ", names.size(),
                " names; expected 1 to ", kMostNames, ", such as name=loss");
  const PointsRequest request = {
      .from = parameters.whole("from", 0, 0, kMostStep),
      .to = parameters.whole("to", kMostStep, 0, kMostStep),
      .most = static_cast<size_t>(parameters.whole("points", 800, 1, kMostPoints))};
  ordered_json series = ordered_json::array();
  for (const std::string& name : names) series.push_back(one_series(run, name, request));
  return {{"series", std::move(series)}};
}

ordered_json experts_answer(RunList& runs, const Parameters& parameters) {
  WatchedRun& run = asked_run(runs, parameters);
  const MetricColumns& metrics = run.metrics();
  ordered_json answer = {{"step", nullptr}, {"lists", ordered_json::array()}};
  if (metrics.num_rows() == 0) return answer;
  const int64_t step = parameters.whole("step", run.last_step(), 0, kMostStep);
  size_t row = metrics.row_of(step);
  // The step itself, or the last one before it.
  if (row == metrics.num_rows() || (metrics.step_at(row) > step && row > 0)) --row;
  answer["step"] = metrics.step_at(row);
  for (const auto& [name, count] : metrics.lists())
    answer["lists"].push_back({{"name", name}, {"values", metrics.list_values(name, row)}});
  return answer;
}

}  // namespace trireme::watch
