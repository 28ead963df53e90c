#include "trireme/watch/run/crash_words.h"

#include <gtest/gtest.h>

#include "tests/comm/observed.h"
#include "tests/watch/run/lines.h"
#include "trireme/base/error.h"

namespace trireme::watch {
namespace {

using comm::Observed;
using comm::ProcessState;
using launch::Event;
using launch::EventKind;

// Two ranks that have made steps 1 to 9; rank 1 ends within step 10, before an all_reduce.
class CrashWordsTest : public testing::Test {
 protected:
  CrashWordsTest() : ranks_(comm::run_of(2)) {
    comm::RecordedStep under_way;
    under_way.step = 10;
    for (Observed& rank : ranks_) rank.ring().steps.push_back(under_way);
    ranks_[0].call("all_reduce", 40);
    ranks_[0].fail(46).close(46);
    ranks_[1].process(ProcessState::kGone);
    for (int step = 1; step <= 9; ++step)
      add_row(metrics_, step, concat("\"time\":", 1000 + 2 * step, ",\"step_seconds\":2"));
  }

  CrashWords words(std::optional<int64_t> saved_step = std::nullopt, bool is_over = true) {
    const std::vector<comm::ObservedRank> ranks = observed(ranks_);
    const std::vector<comm::Finding> findings =
        ranks.empty() ? std::vector<comm::Finding>() : comm::diagnose(ranks);
    return crash_words({.ranks = ranks,
                        .findings = findings,
                        .events = events_,
                        .metrics = metrics_,
                        .saved_step = saved_step,
                        .is_over = is_over});
  }

  std::vector<Observed> ranks_;
  launch::EventLog events_;
  MetricColumns metrics_;
};

TEST_F(CrashWordsTest, TheLauncherAndTheRecorderTellWhoAndWhere) {
  const std::string killed = "rank 1 was killed by signal 9 (Killed)";
  events_.events = {{.kind = EventKind::kStart},
                    {.kind = EventKind::kFailure, .rank = 1, .text = killed},
                    {.kind = EventKind::kEnd, .rank = 1, .cause = "killed", .text = killed}};
  const CrashWords crash = words(6);
  EXPECT_EQ(crash.rank,
            "Rank 1 was killed by signal 9 (Killed). It was process 4001 on host host.");
  EXPECT_EQ(crash.call,
            "Rank 1 was in step 10, between two calls: barrier #1 of group world had ended. "
            "Rank 0 waited for it in all_reduce #2 of group world.");
  EXPECT_EQ(crash.lost,
            "Steps 7 to 9, 6 s of training. The newest checkpoint is of step 6; the same command "
            "goes on from there.");
}

TEST_F(CrashWordsTest, WithoutEventsTheRecorderTells) {
  const std::string died = words().rank;
  EXPECT_TRUE(died.starts_with("Rank 1 died: ")) << died;
  EXPECT_NE(died.find("process 4001 on host host"), std::string::npos) << died;
  ranks_[1].call("all_reduce", 41);
  EXPECT_TRUE(
      words().call.starts_with("Rank 1 was in step 10, within all_reduce #2 of group world"))
      << words().call;
  for (Observed& rank : ranks_) rank.ring().closed.reset();
  ranks_[0].process(ProcessState::kGone);
  EXPECT_TRUE(words().rank.starts_with("All 2 ranks died: ")) << words().rank;
}

TEST_F(CrashWordsTest, OfARunThatStandsStillThePresentIsTold) {
  ranks_ = comm::run_of(3);
  ranks_[0].call("all_reduce", 40);
  ranks_[2].call("all_reduce", 41);
  ranks_[1].process(ProcessState::kStopped);
  const CrashWords crash = words(6, /*is_over=*/false);
  EXPECT_TRUE(crash.rank.starts_with("Rank 1 is stopped: ")) << crash.rank;
  EXPECT_EQ(crash.call,
            "Rank 1 is before its first step, between two calls: barrier #1 of group world has "
            "ended. Ranks 0 and 2 wait for it in all_reduce #2 of group world.");
}

TEST_F(CrashWordsTest, AFailureBeforeTheLastStartIsNotTheCause) {
  events_.events = {{.kind = EventKind::kFailure, .rank = 0, .text = "rank 0 was killed"},
                    {.kind = EventKind::kRecovery}};
  EXPECT_TRUE(words().rank.starts_with("Rank 1 died: ")) << words().rank;
}

TEST_F(CrashWordsTest, WhatIsLostDependsOnTheNewestCheckpoint) {
  EXPECT_EQ(words(8).lost,
            "Step 9, 2 s of training. The newest checkpoint is of step 8; the same command goes on "
            "from there.");
  EXPECT_EQ(words(9).lost,
            "Only the step under way. The newest checkpoint is of step 9; the same command goes on "
            "from there.");
  EXPECT_EQ(words().lost,
            "Steps 1 to 9, 18 s of training. Its folder has no checkpoint; the same command begins "
            "anew.");
  EXPECT_TRUE(words(6, /*is_over=*/false).lost.starts_with("If it is ended now: steps 7 to 9, "));
  metrics_.clear();
  EXPECT_TRUE(words().lost.starts_with("Only its start: no step was finished. ")) << words().lost;
}

TEST_F(CrashWordsTest, WhatNobodyRecordedIsSaid) {
  ranks_.clear();
  const CrashWords crash = words();
  EXPECT_EQ(crash.rank, "Nothing says which: no rank is known to have died or to be late.");
  EXPECT_EQ(crash.call, "Nothing says: the run has no flight recorder in its folder.");
  events_.events = {{.kind = EventKind::kEnd, .cause = "error", .text = "the loss is not finite"}};
  EXPECT_EQ(words().rank, "None died. The run ended with: The loss is not finite.");
}

}  // namespace
}  // namespace trireme::watch
