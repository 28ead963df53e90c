#include "trireme/launch/journal/story.h"

#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "tests/launch/journal/morning.h"

namespace trireme::launch {
namespace {

using Kind = EventKind;

WallTime after(double seconds) {
  return kMorning + std::chrono::microseconds(static_cast<int64_t>(1e6 * seconds));
}

Event event(double seconds, Kind kind, int64_t epoch, int64_t step, const std::string& cause = "",
            const std::string& host = "") {
  return {.time = after(seconds),
          .kind = kind,
          .epoch = epoch,
          .step = step,
          .host = host,
          .cause = cause};
}

// 10 s to start; 100 steps of 1 s; a failure that takes 5 s and loses 10 steps; 50 more steps.
EventLog one_failure() {
  return {.events = {event(0, Kind::kStart, 1, 0), event(10, Kind::kRecovery, 1, 1),
                     event(110, Kind::kFailure, 1, 101, "killed", "b"),
                     event(111, Kind::kDecision, 1, 101), event(112, Kind::kStart, 2, 101),
                     event(115, Kind::kRecovery, 2, 92), event(165, Kind::kEnd, 2, 142)}};
}

double accounted(const Story& story) {
  double seconds = story.kept_seconds + story.start_seconds;
  for (const CauseShare& share : story.causes) seconds += share.lost_seconds();
  return seconds;
}

TEST(Story, ChargesAFailureItsRecoveryAndTheStepsItCost) {
  const Story story = story_of(one_failure());
  EXPECT_TRUE(story.has_ended);
  EXPECT_EQ(story.num_epochs, 2);
  EXPECT_EQ(story.num_failures, 1);
  EXPECT_EQ(story.last_step, 142);
  EXPECT_NEAR(story.wall_seconds, 165, 1e-6);
  EXPECT_NEAR(story.start_seconds, 10, 1e-6);
  EXPECT_NEAR(story.kept_seconds, 140, 1e-6);
  ASSERT_EQ(story.causes.size(), 1u);
  EXPECT_EQ(story.causes[0].cause, "killed");
  EXPECT_EQ(story.causes[0].num_failures, 1);
  EXPECT_NEAR(story.causes[0].down_seconds, 5, 1e-6);
  EXPECT_NEAR(story.causes[0].repeated_seconds, 10, 1e-6);
  EXPECT_EQ(story.causes[0].num_repeated_steps, 10);
  EXPECT_NEAR(story.goodput().value(), 140.0 / 165, 1e-9);
  ASSERT_EQ(story.recovery_seconds.size(), 1u);
  EXPECT_NEAR(story.recovery_seconds[0], 5, 1e-6);
  ASSERT_EQ(story.hosts.size(), 1u);
  EXPECT_EQ(story.hosts[0], (std::pair<std::string, int64_t>("b", 1)));
}

TEST(Story, ARunThatGoesOnCountsUpToNow) {
  EventLog log = one_failure();
  log.events.pop_back();
  const Story story = story_of(log, after(215));
  EXPECT_FALSE(story.has_ended);
  EXPECT_NEAR(story.wall_seconds, 215, 1e-6);
  EXPECT_NEAR(story.kept_seconds, 190, 1e-6);
  EXPECT_NEAR(story_of(log).wall_seconds, 115, 1e-6);
}

TEST(Story, AFailureInARecoveryTakesTheRestOfIt) {
  const Story story = story_of(
      {.events = {event(0, Kind::kStart, 1, 0), event(1, Kind::kRecovery, 1, 1),
                  event(11, Kind::kFailure, 1, 11, "killed"), event(13, Kind::kStart, 2, 11),
                  event(14, Kind::kFailure, 2, 11, "hung"), event(16, Kind::kStart, 3, 11),
                  event(20, Kind::kRecovery, 3, 12), event(30, Kind::kEnd, 3, 22)}});
  ASSERT_EQ(story.causes.size(), 2u);
  EXPECT_EQ(story.causes[0].cause, "hung");
  EXPECT_NEAR(story.causes[0].down_seconds, 6, 1e-6);
  EXPECT_NEAR(story.causes[1].down_seconds, 3, 1e-6);
  EXPECT_EQ(story.recovery_seconds.size(), 1u);
  EXPECT_NEAR(story.kept_seconds, 20, 1e-6);
}

TEST(Story, StepsOfSeveralEpochsMayBeLost) {
  const Story story = story_of(
      {.events = {event(0, Kind::kStart, 1, 0), event(0, Kind::kRecovery, 1, 1),
                  event(10, Kind::kFailure, 1, 11, "killed"), event(10, Kind::kStart, 2, 11),
                  event(10, Kind::kRecovery, 2, 12), event(20, Kind::kFailure, 2, 22, "host lost"),
                  event(20, Kind::kStart, 3, 22), event(20, Kind::kRecovery, 3, 7),
                  event(30, Kind::kEnd, 3, 17)}});
  EXPECT_NEAR(story.kept_seconds, 15, 1e-6);
  EXPECT_EQ(story.causes[0].cause, "host lost");
  EXPECT_NEAR(story.causes[0].repeated_seconds, 15, 1e-6);
  EXPECT_EQ(story.causes[0].num_repeated_steps, 16);
}

TEST(Story, StepsThatWereReportedAfterTheFailureAreRepeatedToo) {
  EventLog log = one_failure();
  log.events[4].step = 106;
  const Story story = story_of(log);
  EXPECT_EQ(story.causes[0].num_repeated_steps, 15);
  EXPECT_NEAR(story.causes[0].repeated_seconds, 100.0 * 15 / 105, 1e-6);
}

TEST(Story, AFailureBeforeTheFirstStepRepeatsNothingByItself) {
  EventLog log = one_failure();
  log.events.insert(log.events.begin() + 5,
                    {event(113, Kind::kFailure, 2, 101, "hung"), event(114, Kind::kStart, 3, 101)});
  const Story story = story_of(log);
  ASSERT_EQ(story.causes.size(), 2u);
  EXPECT_EQ(story.causes[0].cause, "hung");
  EXPECT_EQ(story.causes[0].num_repeated_steps, 10);
  EXPECT_EQ(story.causes[1].num_repeated_steps, 0);
}

TEST(Story, AHostThatJoinsIsNoFailure) {
  const Story story =
      story_of({.events = {event(0, Kind::kStart, 1, 0), event(0, Kind::kRecovery, 1, 0),
                           event(10, Kind::kJoin, 1, 10, "", "c"), event(10, Kind::kStart, 2, 10),
                           event(13, Kind::kRecovery, 2, 11), event(23, Kind::kEnd, 2, 21)}});
  EXPECT_EQ(story.num_failures, 0);
  EXPECT_TRUE(story.recovery_seconds.empty());
  ASSERT_EQ(story.causes.size(), 1u);
  EXPECT_EQ(story.causes[0].cause, "host joined");
  EXPECT_NEAR(story.causes[0].down_seconds, 3, 1e-6);
}

TEST(Story, TimeBetweenTwoJobsDoesNotCount) {
  EventLog log = one_failure();
  log.events.push_back(event(1000, Kind::kStart, 1, 142));
  log.events.push_back(event(1010, Kind::kRecovery, 1, 143));
  log.events.push_back(event(1020, Kind::kEnd, 1, 153));
  const Story story = story_of(log);
  EXPECT_NEAR(story.wall_seconds, 185, 1e-6);
  EXPECT_NEAR(story.kept_seconds, 150, 1e-6);
  EXPECT_NEAR(story.start_seconds, 20, 1e-6);
  EXPECT_EQ(story.num_without_end, 0);
}

TEST(Story, AJobWhoseLeaderWasKilledHasNoEnd) {
  EventLog log = one_failure();
  log.events.back() = event(2000, Kind::kStart, 1, 92);
  const Story story = story_of(log);
  EXPECT_EQ(story.num_without_end, 1);
  EXPECT_NEAR(story.wall_seconds, 115, 1e-6);
}

TEST(Story, AJobThatBeginsAnewRepeatsWhatItGoesBackFrom) {
  EventLog log = one_failure();
  log.events.back() = event(2000, Kind::kStart, 1, -1);
  log.events.push_back(event(2010, Kind::kRecovery, 1, 91));
  const Story story = story_of(log);
  ASSERT_EQ(story.causes.size(), 2u);
  EXPECT_EQ(story.causes[1].cause, "restart");
  EXPECT_EQ(story.causes[1].num_repeated_steps, 2);
}

TEST(Story, WithoutRecoveriesStepsRunFromTheStart) {
  const Story story =
      story_of({.events = {event(0, Kind::kStart, 1, 0), event(100, Kind::kEnd, 1, 50)}});
  EXPECT_NEAR(story.kept_seconds, 100, 1e-6);
  EXPECT_EQ(story.start_seconds, 0);
}

// The host's clock is set back by an hour in the first steps, and forth by two in the last ones.
TEST(Story, CountsByTheLeadersClockWhenTheHostsIsSet) {
  EventLog log = one_failure();
  for (size_t i = 0; i < log.events.size(); ++i) {
    Event& event = log.events[i];
    event.uptime = 0.5 + std::chrono::duration<double>(event.time - kMorning).count();
    if (i >= 2) event.time -= std::chrono::hours(1);
    if (i >= 6) event.time += std::chrono::hours(2);
  }
  // A rank's alert has no uptime.
  Event alert = event(20, Kind::kNotice, 1, 11, "alert");
  alert.time += std::chrono::hours(3);
  log.events.insert(log.events.begin() + 2, alert);
  const Story story = story_of(log);
  EXPECT_NEAR(story.wall_seconds, 165, 1e-6);
  EXPECT_NEAR(story.goodput().value(), 140.0 / 165, 1e-9);
  // A run that goes on: by the host's clock from there on.
  log.events.pop_back();
  const WallTime until = log.events.back().time + std::chrono::seconds(50);
  EXPECT_NEAR(story_of(log, until).goodput().value(), 140.0 / 165, 1e-9);
}

TEST(Story, KnowsNoGoodputOfAProgramThatDoesNotSayItsSteps) {
  const Story story = story_of(
      {.events = {event(0, Kind::kStart, 1, -1), event(60, Kind::kFailure, 1, -1, "killed"),
                  event(61, Kind::kStart, 2, -1), event(100, Kind::kEnd, 2, -1)}});
  EXPECT_NEAR(story.wall_seconds, 100, 1e-6);
  EXPECT_EQ(story.goodput(), std::nullopt);
}

TEST(Story, NothingHappenedIsAStoryToo) {
  EXPECT_EQ(story_of({}).goodput(), std::nullopt);
  EXPECT_EQ(story_of({}).num_epochs, 0);
}

TEST(Story, EverySecondIsAccountedForWhateverTheEventsSay) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 2000; ++round) {
    EventLog log;
    double time = 0;
    for (int i = below(30); i > 0; --i) {
      time += below(100) - 10;
      log.events.push_back(event(time, kEventKinds[below(10)].value, below(4), below(40) - 1,
                                 below(2) == 0 ? "killed" : "hung"));
    }
    const Story story = story_of(log, after(time + below(50)));
    ASSERT_NEAR(accounted(story), story.wall_seconds, 1e-3) << round;
    ASSERT_GE(story.kept_seconds, 0);
    ASSERT_GE(story.goodput().value_or(0), 0);
    ASSERT_LE(story.goodput().value_or(0), 1 + 1e-9);
  }
}

}  // namespace
}  // namespace trireme::launch
