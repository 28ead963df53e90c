#include "trireme/watch/serve/meanings.h"

#include <optional>

#include "trireme/train/metrics/metric_table.h"

namespace trireme::watch {
namespace {

struct RankColumn {
  std::string_view name;
  std::string_view unit;
  std::string_view meaning;
};
constexpr RankColumn kRankColumns[] = {
    {"step_seconds", "s", "duration of the step on the rank"},
    {"own_seconds", "s", "part of the step in which the rank waited for nobody"},
    {"data_seconds", "s", "part of the step spent waiting for samples"},
    {"wait_seconds", "s", "part of the step spent waiting for other ranks"},
    {"tokens", "", "tokens that the rank read in the step"},
    {"peak_bytes", "bytes", "the most memory that the rank held so far"},
    {"temperature", "degrees Celsius", "temperature of the rank's processor"},
};

const train::MetricKind* kind_of(std::string_view name) {
  for (const train::MetricKind& kind : train::metric_kinds()) {
    // "*_per_second" stands for any unit.
    if (kind.name == name) return &kind;
    if (kind.name.starts_with('*') && name.ends_with(kind.name.substr(1))) return &kind;
  }
  return nullptr;
}

// "ranks/own_seconds" and "rank/3/own_seconds" -> "own_seconds".
std::optional<std::string_view> rank_column_of(std::string_view name) {
  if (name.starts_with("ranks/")) return name.substr(name.find('/') + 1);
  if (!name.starts_with("rank/")) return std::nullopt;
  const size_t end = name.find('/', 5);
  return end == name.npos ? std::nullopt : std::optional(name.substr(end + 1));
}

}  // namespace

std::string unit_of(std::string_view name) {
  if (const auto column = rank_column_of(name)) {
    if (column->starts_with("communication_seconds/")) return "s";
    if (column->starts_with("memory_bytes/")) return "bytes";
    for (const RankColumn& each : kRankColumns) {
      if (each.name == *column) return std::string(each.unit);
    }
    return "";
  }
  if (const train::MetricKind* kind = kind_of(name)) return std::string(kind->unit);
  return name == "time" ? "s" : "";
}

std::string meaning_of(std::string_view name) {
  if (const auto column = rank_column_of(name)) {
    const size_t slash = column->find('/');
    const std::string part(slash == column->npos ? "" : column->substr(slash + 1));
    if (column->starts_with("communication_seconds/"))
      return "seconds of the step spent waiting on the axis " + part;
    if (column->starts_with("memory_bytes/")) return "bytes that the rank holds in " + part;
    for (const RankColumn& each : kRankColumns) {
      if (each.name == *column) return std::string(each.meaning);
    }
    return "";
  }
  const train::MetricKind* kind = kind_of(name);
  return kind ? std::string(kind->meaning) : "";
}

}  // namespace trireme::watch
