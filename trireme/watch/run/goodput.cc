#include "trireme/watch/run/goodput.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "trireme/base/clock.h"
#include "trireme/base/numbers.h"
#include "trireme/launch/journal/story.h"

namespace trireme::watch {
namespace {

constexpr double kFewestGapSeconds = 30;
constexpr double kGapSteps = 20;
constexpr size_t kMedianSteps = 256;

double seconds_of(launch::WallTime time) { return in_seconds(time.time_since_epoch()); }

class SpanWriter {
 public:
  explicit SpanWriter(std::vector<TimeSpan>& spans) : spans_(spans) {}
  void begin(double time, const std::string& cause) {
    end(time);
    cause_ = cause;
    from_ = time;
  }
  void end(double time) {
    if (!cause_.empty() && time > from_) spans_.push_back({from_, time, cause_});
    cause_.clear();
  }

 private:
  std::vector<TimeSpan>& spans_;
  std::string cause_;
  double from_ = 0;
};

// When the run wrote the step, or the last one; 0: unknown.
double time_of_step(const MetricColumns& metrics, int64_t step) {
  if (metrics.num_rows() == 0 || step < metrics.step_at(0)) return 0;
  const size_t row = std::min(metrics.row_of(step), metrics.num_rows() - 1);
  const double time = metrics.value("time", row);
  return std::isfinite(time) ? time : 0;
}

Goodput from_events(const launch::EventLog& events, const MetricColumns& metrics,
                    std::optional<double> now) {
  Goodput goodput;
  SpanWriter spans(goodput.spans);
  bool has_failed = false;
  double last = 0;
  bool has_ended = false;
  for (const launch::Event& event : events.events) {
    const double before = last;
    // A clock that was set back moves no span.
    last = std::max(before, seconds_of(event.time));
    switch (event.kind) {
      case launch::EventKind::kStart:
        if (event.epoch <= 1) has_failed = false;
        has_ended = false;
        // A job that was killed whole has written no end: it trained up to the step that is kept.
        if (!has_failed) spans.end(std::clamp(time_of_step(metrics, event.step), before, last));
        if (!has_failed) spans.begin(last, event.epoch <= 1 ? "starting" : "restarting");
        break;
      case launch::EventKind::kFailure:
        has_failed = true;
        spans.begin(last, "restarting");
        break;
      case launch::EventKind::kRecovery:
        has_failed = false;
        spans.begin(last, "training");
        break;
      case launch::EventKind::kEnd:
        spans.end(last);
        has_failed = false;
        has_ended = true;
        break;
      default: break;
    }
  }
  // Of a run that died without a word the last step is the last that is known.
  const double end = std::max(last, now.value_or(time_of_step(metrics, INT64_MAX)));
  spans.end(end);
  std::optional<launch::WallTime> until;
  if (!has_ended && end > last && end < 9e9) {
    until = launch::WallTime(
        std::chrono::duration_cast<launch::WallTime::duration>(std::chrono::duration<double>(end)));
  }
  goodput.share = launch::story_of(events, until).goodput();
  return goodput;
}

Goodput from_metrics(const MetricColumns& metrics, std::optional<double> now) {
  Goodput goodput;
  const double step_seconds = median_step_seconds(metrics);
  const double most_gap = std::max(kFewestGapSeconds, kGapSteps * step_seconds);
  double training = 0, last = 0, begin = 0;
  const auto take_gap = [&](double time) {
    // A step that took long has its whole time in one gap.
    if (time - last <= most_gap) return;
    if (last > begin) goodput.spans.push_back({begin, last, "training"});
    training += last - begin;
    goodput.spans.push_back({last, time, "stalled"});
    begin = time;
  };
  for (size_t row = 0; row < metrics.num_rows(); ++row) {
    const double time = metrics.value("time", row);
    if (!std::isfinite(time) || time <= 0 || time < last) continue;
    if (last == 0) {
      const double first = metrics.value("step_seconds", row);
      begin = last = time - (std::isfinite(first) ? std::clamp(first, 0.0, 1e6) : 0);
    }
    take_gap(time);
    last = time;
  }
  if (last == 0) return goodput;
  if (now && *now > last) {
    take_gap(*now);
    last = *now;
  }
  if (last > begin) goodput.spans.push_back({begin, last, "training"});
  training += last - begin;
  double total = 0;
  for (const TimeSpan& span : goodput.spans) total += span.to - span.from;
  if (total > 0) goodput.share = training / total;
  return goodput;
}

}  // namespace

double median_step_seconds(const MetricColumns& metrics) {
  return median(metrics.finite_before("step_seconds", metrics.num_rows(), kMedianSteps));
}

Goodput goodput_of(const launch::EventLog& events, const MetricColumns& metrics,
                   std::optional<double> now) {
  const bool has_steps = std::ranges::any_of(events.events, [](const launch::Event& event) {
    return event.kind == launch::EventKind::kRecovery;
  });
  Goodput goodput = has_steps ? from_events(events, metrics, now) : from_metrics(metrics, now);
  if (goodput.spans.size() > kMostSpans) {
    goodput.spans.erase(goodput.spans.begin(),
                        goodput.spans.end() - static_cast<ptrdiff_t>(kMostSpans));
  }
  return goodput;
}

}  // namespace trireme::watch
