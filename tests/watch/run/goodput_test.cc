#include "trireme/watch/run/goodput.h"

#include <chrono>
#include <string>

#include <gtest/gtest.h>

#include "tests/watch/run/lines.h"

namespace trireme::watch {
namespace {

// "training 10, stalled 5": causes and seconds.
std::string outline(const Goodput& goodput) {
  std::string text;
  for (const TimeSpan& span : goodput.spans)
    text += concat(text.empty() ? "" : ", ", span.cause, " ", span.to - span.from);
  return text;
}

launch::Event event_at(int seconds, launch::EventKind kind, int64_t epoch, int64_t step) {
  return {.time = launch::WallTime(std::chrono::seconds(1'000'000 + seconds)),
          .kind = kind,
          .epoch = epoch,
          .step = step};
}

TEST(Goodput, EventsSayWhatTheTimeWasSpentOn) {
  using enum launch::EventKind;
  launch::EventLog log{.events = {event_at(0, kStart, 1, 0), event_at(10, kRecovery, 1, 1),
                                  event_at(110, kFailure, 1, 101), event_at(112, kStart, 2, 101),
                                  event_at(115, kRecovery, 2, 102), event_at(215, kEnd, 2, 200)}};
  const Goodput goodput = goodput_of(log, {}, std::nullopt);
  EXPECT_EQ(outline(goodput), "starting 10, training 100, restarting 5, training 100");
  EXPECT_NEAR(*goodput.share, 200.0 / 215, 0.01);
}

TEST(Goodput, AJobThatWasKilledWholeTrainedUpToItsLastStep) {
  using enum launch::EventKind;
  MetricColumns metrics;
  add_row(metrics, 1, "\"time\":1000010");
  add_row(metrics, 2, "\"time\":1000040");
  launch::EventLog log{.events = {event_at(0, kStart, 1, 0), event_at(10, kRecovery, 1, 1)}};
  const Goodput dead = goodput_of(log, metrics, std::nullopt);
  EXPECT_EQ(outline(dead), "starting 10, training 30");
  EXPECT_NEAR(*dead.share, 0.75, 1e-6);
  // Somebody goes on with it later.
  log.events.push_back(event_at(500, kStart, 2, 2));
  log.events.push_back(event_at(505, kRecovery, 2, 3));
  add_row(metrics, 3, "\"time\":1000505");
  EXPECT_EQ(outline(goodput_of(log, metrics, 1'000'600)),
            "starting 10, training 30, restarting 5, training 95");
}

TEST(Goodput, AJobThatFailedAndEndedRestartsWhenSomebodyStartsItAgain) {
  using enum launch::EventKind;
  const launch::EventLog log{.events = {event_at(0, kStart, 1, 0), event_at(10, kRecovery, 1, 1),
                                        event_at(50, kFailure, 1, 5), event_at(50, kEnd, 1, 5),
                                        event_at(90, kStart, 2, 5), event_at(96, kRecovery, 2, 6),
                                        event_at(100, kEnd, 2, 9)}};
  EXPECT_EQ(outline(goodput_of(log, {}, std::nullopt)),
            "starting 10, training 40, restarting 6, training 4");
}

TEST(Goodput, AClockThatWasSetBackMovesNoSpan) {
  using enum launch::EventKind;
  MetricColumns metrics;
  add_row(metrics, 1, "\"time\":1000010");
  const launch::EventLog log{.events = {event_at(0, kStart, 1, 0), event_at(10, kRecovery, 1, 1),
                                        event_at(-500, kStart, 2, 1),
                                        event_at(20, kRecovery, 2, 2)}};
  const Goodput goodput = goodput_of(log, metrics, std::nullopt);
  double last = 0;
  for (const TimeSpan& span : goodput.spans) {
    EXPECT_LE(last, span.from);
    EXPECT_LE(span.from, span.to);
    last = span.to;
  }
  EXPECT_EQ(outline(goodput), "starting 10, restarting 10");
}

TEST(Goodput, WithoutEventsGapsInTheMetricsAreStalls) {
  MetricColumns metrics;
  add_row(metrics, 1, "\"time\":1000,\"step_seconds\":1");
  for (int step = 2; step <= 10; ++step)
    add_row(metrics, step, concat("\"time\":", 999 + step, ",\"step_seconds\":1"));
  add_row(metrics, 11, "\"time\":1059,\"step_seconds\":1");
  EXPECT_EQ(outline(goodput_of({}, metrics, std::nullopt)), "training 10, stalled 50");
  EXPECT_EQ(outline(goodput_of({}, metrics, 1064)), "training 10, stalled 50, training 5");
  EXPECT_EQ(*goodput_of({}, metrics, std::nullopt).share, 10.0 / 60);
  EXPECT_EQ(median_step_seconds(metrics), 1);
}

TEST(Goodput, NothingIsKnownOfNothing) {
  EXPECT_FALSE(goodput_of({}, {}, 5).share);
  MetricColumns metrics;
  add_row(metrics, 1, "\"time\":null");
  EXPECT_TRUE(goodput_of({}, metrics, 5).spans.empty());
}

}  // namespace
}  // namespace trireme::watch
