// How a run's time was spent, as spans to draw below its loss. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/launch/journal/event.h"
#include "trireme/watch/series/metric_columns.h"

namespace trireme::watch {

struct TimeSpan {
  double from = 0;  // seconds since 1970
  double to = 0;
  std::string cause{};  // "training", "starting", "restarting", "stalled"
};

struct Goodput {
  std::optional<double> share{};  // of the time in steps that were kept; nothing: unknown
  std::vector<TimeSpan> spans{};  // in the order of time, at most kMostSpans: the latest
};
inline constexpr size_t kMostSpans = 2000;

// From the event log when it names steps, as that of `trireme run` does; otherwise from the times
// of the metrics, where a gap of more than 20 median steps, at least 30 seconds, is a stall.
// An event log without an end goes on to `now`, or of a dead run to its last step.
// now: for a run that goes on
Goodput goodput_of(const launch::EventLog& events, const MetricColumns& metrics,
                   std::optional<double> now);

// The median of the last steps' durations; 0 when none is known.
double median_step_seconds(const MetricColumns& metrics);

}  // namespace trireme::watch
