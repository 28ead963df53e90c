#include "trireme/launch/watchdog/classify.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/comm/observed.h"
#include "trireme/base/replicas_differ.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Policy kPolicy{.hang_after = 30s};

// Ranks 0, 1, ... alternately on hosts a and b, as far as their rings show them at second 100.
std::vector<Observation> observations_of(const std::vector<comm::Observed>& ranks) {
  std::vector<Observation> all;
  for (const comm::ObservedRank& rank : observed(ranks)) {
    const comm::Ring& ring = rank.ring;
    comm::WallTime last = ring.created;
    for (const auto& record : ring.records) last = std::max({last, record.issued, record.ended});
    all.push_back({.rank = ring.rank,
                   .host = ring.rank % 2 == 0 ? "a" : "b",
                   .process_id = ring.process_id,
                   .process_state = rank.process == comm::ProcessState::kStopped ? 'T' : 'S',
                   .has_ring = true,
                   .step = 49,
                   .num_calls = ring.records.size(),
                   .idle = ring.now - last,
                   .evidence = rank});
  }
  return all;
}

// Ranks 0, 1, ... whose steps took so many milliseconds of computing in each window.
std::vector<Observation> computing(const std::vector<std::vector<int>>& milliseconds) {
  std::vector<Observation> all;
  for (const std::vector<int>& windows : milliseconds) {
    all.push_back({.rank = static_cast<int>(all.size()), .host = "h", .has_ring = true});
    for (size_t i = 0; i < windows.size(); ++i) {
      all.back().windows.push_back(
          {static_cast<int64_t>(i) * kWindowSteps + 1, std::chrono::milliseconds(windows[i]), 1ms});
    }
  }
  return all;
}

// "hang 1 restart; ..."
std::string outline(const std::vector<Fault>& faults) {
  std::string text;
  for (const Fault& fault : faults) {
    text += (text.empty() ? "" : "; ") + name_of(fault.kind) + " " + std::to_string(fault.rank) +
            " " + name_of(fault.action);
  }
  return text;
}

TEST(Exits, KilledWorkerIsACrashAndThoseThatLostItAreNot) {
  const std::vector<WorkerExit> exits = {
      {.rank = 0, .host = "a", .code = 3, .message = "rank 0: lost rank 1", .step = 7},
      {.rank = 1, .host = "b", .code = -1, .signal = SIGSEGV, .step = 7},
      {.rank = 2, .host = "a", .code = 3, .step = 7},
      {.rank = 3, .host = "b", .code = 0}};
  const auto faults = classify_exits(exits, {}, {});
  ASSERT_EQ(outline(faults), "crash 1 restart");
  EXPECT_EQ(faults[0].host, "b");
  EXPECT_EQ(faults[0].step, 7);
  EXPECT_THAT(faults[0].evidence,
              AllOf(HasSubstr("rank 1 was killed by signal 11"), HasSubstr("host b")));
}

TEST(Exits, WorkersThatOnlyLostPeersCountWhenNothingElseExplainsThem) {
  const std::vector<WorkerExit> exits = {{.rank = 0, .code = 3, .message = "rank 0: timed out"},
                                         {.rank = 1, .code = 3}};
  EXPECT_EQ(outline(classify_exits(exits, {}, {})), "crash 0 restart; crash 1 restart");
  EXPECT_TRUE(classify_exits(std::vector<WorkerExit>{{.rank = 0}}, {}, {}).empty());
  EXPECT_TRUE(classify_exits({}, {}, {}).empty());
}

TEST(Exits, WhatNoRestartHelpsStopsTheRunAndComesFirst) {
  for (const int code : {2, 4}) {
    const std::vector<WorkerExit> exits = {
        {.rank = 1, .code = 1}, {.rank = 0, .code = code, .message = "train.steps is -1"}};
    const auto faults = classify_exits(exits, {}, {});
    EXPECT_EQ(outline(faults), "crash 0 stop; crash 1 restart");
    EXPECT_THAT(faults[0].evidence, HasSubstr("train.steps is -1"));
  }
}

TEST(Exits, ReplicaCheckNamesTheRankThatDiffersWhoeverSaysSo) {
  const std::string message = to_string(ReplicasDiffer{"w", {2}, true});
  // An error that the user can fix has exit code 2; this one is recognised before.
  std::vector<WorkerExit> exits;
  for (int rank = 0; rank < 4; ++rank) {
    exits.push_back({.rank = rank, .code = rank == 3 ? 3 : 2, .step = 100});
    exits.back().message = rank == 3 ? "" : message;
  }
  std::vector<Observation> observations;
  for (int rank = 0; rank < 4; ++rank) {
    observations.push_back({.rank = rank, .host = rank < 2 ? "a" : "b"});
  }
  const auto faults = classify_exits(exits, observations, {});
  ASSERT_EQ(outline(faults), "corruption 2 exclude");
  EXPECT_EQ(faults[0].host, "b");
  EXPECT_EQ(faults[0].step, 100);
  EXPECT_THAT(faults[0].evidence, HasSubstr("\"w\" has different bits on rank 2"));
}

TEST(Exits, WithoutAMajorityNoHostIsExcluded) {
  const std::vector<WorkerExit> exits = {
      {.rank = 0, .code = 2, .message = to_string(ReplicasDiffer{"w", {1}, false})}};
  EXPECT_EQ(outline(classify_exits(exits, {}, {})), "corruption 1 restart");
  EXPECT_EQ(outline(classify_exits(exits, {}, {.corruption = Action::kWarn})), "corruption 1 warn");
}

TEST(Hang, LateRankIsNamedWithTheCallItsNumberTheGroupAndHowLong) {
  auto ranks = comm::run_of(3);
  ranks[0].call("all_reduce", 60);
  ranks[2].call("all_reduce", 61);
  auto observations = observations_of(ranks);
  observations[1].process_state = 'R';
  observations[1].cores_used = 1.02;
  const auto faults = classify(observations, kPolicy);
  ASSERT_EQ(outline(faults), "hang 1 restart");
  EXPECT_EQ(faults[0].host, "b");
  EXPECT_EQ(faults[0].step, 49);
  EXPECT_THAT(faults[0].evidence,
              AllOf(HasSubstr("rank 1 is late: it has not begun all_reduce #2 of group world"),
                    HasSubstr("(40 s)"), HasSubstr("process 4001 computes on 1.0 cores")));
}

TEST(Hang, TellsWhatTheLateProcessDoes) {
  auto ranks = comm::run_of(2);
  ranks[0].call("all_reduce", 60);
  auto observations = observations_of(ranks);
  observations[1].process_state = 'D';
  EXPECT_THAT(classify(observations, kPolicy).at(0).evidence,
              HasSubstr("process 4001 waits for a disk or a network file system"));
  observations[1].process_state = 'S';
  EXPECT_THAT(classify(observations, kPolicy).at(0).evidence, HasSubstr("process 4001 sleeps"));
}

TEST(Hang, StoppedRankIsNamedAndItsPeersAreNot) {
  auto ranks = comm::run_of(3);
  for (auto& rank : ranks) rank.call("all_reduce", 60);
  ranks[2].process(comm::ProcessState::kStopped);
  const auto faults = classify(observations_of(ranks), kPolicy);
  ASSERT_EQ(outline(faults), "hang 2 restart");
  EXPECT_THAT(faults[0].evidence, AllOf(HasSubstr("rank 2 is stopped"), HasSubstr("kill -CONT")));
}

TEST(Hang, RankThatHasNotBegunToRecordIsMissing) {
  auto ranks = comm::run_of(3);
  ranks[0].call("all_reduce", 60);
  ranks[1].call("all_reduce", 60);
  auto observations = observations_of(ranks);
  observations[2] = {.rank = 2, .host = "a", .process_id = 7, .process_state = 'D'};
  const auto faults = classify(observations, kPolicy);
  ASSERT_EQ(outline(faults), "hang 2 restart");
  EXPECT_EQ(faults[0].host, "a");
  EXPECT_THAT(faults[0].evidence, AllOf(HasSubstr("rank 2 has no ring: it has not started"),
                                        HasSubstr("process 7 waits for a disk")));
}

TEST(Hang, MutualWaitsAreOneFault) {
  auto ranks = comm::run_of(2);
  ranks[0].message("recv", 1, 7, 60);
  ranks[1].message("recv", 0, 7, 60);
  const auto faults = classify(observations_of(ranks), kPolicy);
  ASSERT_EQ(outline(faults), "hang 0 restart");
  EXPECT_THAT(faults[0].evidence, HasSubstr("ranks 0 and 1 wait for each other"));
}

TEST(Hang, IsNoneWhileAnyRankProgresses) {
  auto ranks = comm::run_of(3);
  ranks[0].call("all_reduce", 60);
  ranks[2].call("all_reduce", 60);
  ranks[1].call("all_reduce", 60, 75);
  EXPECT_TRUE(classify(observations_of(ranks), kPolicy).empty());
  EXPECT_FALSE(classify(observations_of(ranks), {.hang_after = 20s}).empty());
}

TEST(Hang, SilenceOfRanksThatComputeIsNoneForLong) {
  auto observations = observations_of(comm::run_of(2));
  for (Observation& rank : observations) rank.cores_used = 1;
  EXPECT_TRUE(classify(observations, kPolicy).empty());
  EXPECT_EQ(outline(classify(observations, {.hang_after = 9s})), "hang 0 restart; hang 1 restart");
  // One that does nothing at all is not given that time.
  observations[1].cores_used = 0;
  const auto faults = classify(observations, kPolicy);
  ASSERT_EQ(outline(faults), "hang 1 restart");
  EXPECT_THAT(faults[0].evidence, AllOf(HasSubstr("rank 1 on host b has begun and ended no call"),
                                        HasSubstr("98 s"), HasSubstr("sleeps")));
}

TEST(Hang, ProgramsWithoutARecorderAreNotJudged) {
  std::vector<Observation> observations = {{.rank = 0}, {.rank = 1}};
  EXPECT_TRUE(classify(observations, kPolicy).empty());
  EXPECT_TRUE(classify({}, kPolicy).empty());
}

TEST(Straggler, IsTheRankThatComputesLongerInThreeWindowsInARow) {
  const auto faults = classify(computing({{100, 100, 100}, {200, 210, 220}, {101, 99, 100}}), {});
  ASSERT_EQ(outline(faults), "straggler 1 warn");
  EXPECT_THAT(faults[0].evidence,
              AllOf(HasSubstr("rank 1 on host h computes for 0.20 s in each step"),
                    HasSubstr("the median of its 2 peers for 0.10 s"), HasSubstr("steps 1 to 60")));
}

TEST(Straggler, OneGoodWindowOrTooFewWindowsAcquitIt) {
  EXPECT_EQ(outline(classify(computing({{100, 100, 100}, {200, 140, 220}}), {})), "");
  EXPECT_EQ(outline(classify(computing({{100, 100}, {200, 200}}), {})), "");
  EXPECT_EQ(outline(classify(computing({{200, 200, 200}}), {})), "");
}

TEST(Straggler, OnlyTheLatestCommonWindowsCount) {
  // Rank 1 recovered in the fourth window; rank 0's observation is one window behind in the other.
  EXPECT_EQ(outline(classify(computing({{100, 100, 100, 100}, {200, 200, 200, 100}}), {})), "");
  EXPECT_EQ(outline(classify(computing({{100, 100, 100}, {100, 200, 200, 200}}), {})), "");
  EXPECT_EQ(outline(classify(computing({{9, 100, 100, 100}, {9, 200, 200, 200, 200}}), {})),
            "straggler 1 warn");
}

TEST(Straggler, TinyStepsDoNotMakeOne) {
  EXPECT_EQ(outline(classify(computing({{1, 1, 1}, {3, 3, 3}}), {})), "");
}

TEST(Straggler, StagesOfAPipelineAreComparedOnlyAmongThemselves) {
  auto observations =
      computing({{100, 100, 100}, {100, 100, 100}, {300, 300, 300}, {310, 300, 300}});
  observations[2].stage = observations[3].stage = 1;
  EXPECT_EQ(outline(classify(observations, {})), "");
  observations[3].windows[0].computing = observations[3].windows[1].computing =
      observations[3].windows[2].computing = 900ms;
  EXPECT_EQ(outline(classify(observations, {})), "straggler 3 warn");
}

TEST(Straggler, AllSlowRanksOfAHostAreNamed) {
  EXPECT_EQ(outline(classify(computing({{100, 100, 100},
                                        {100, 100, 100},
                                        {100, 100, 100},
                                        {200, 200, 200},
                                        {200, 200, 200}}),
                             {.straggler = Action::kExclude})),
            "straggler 3 exclude; straggler 4 exclude");
}

}  // namespace
}  // namespace trireme::launch
