#include "trireme/watch/run/run_state.h"

#include <gtest/gtest.h>

namespace trireme::watch {
namespace {

using comm::Finding;
using comm::ObservedRank;
using comm::ProcessState;

ObservedRank rank_in(ProcessState process, bool is_closed = false) {
  ObservedRank rank;
  rank.process = process;
  if (is_closed) rank.ring.closed = comm::WallTime();
  return rank;
}

StateFacts facts_of(std::vector<ObservedRank> ranks) {
  return {.ranks = std::move(ranks),
          .findings = {{.kind = Finding::Kind::kProgress, .ranks = {}, .text = "fine"}},
          .last_step = 50,
          .steps = 100,
          .changed_at = 1000,
          .step_seconds = 1,
          .now = 1001};
}

TEST(RunState, TheProcessesDecide) {
  const auto running = rank_in(ProcessState::kRunning), gone = rank_in(ProcessState::kGone),
             closed = rank_in(ProcessState::kGone, true);
  EXPECT_EQ(judge_state(facts_of({running, running})).state, RunState::kRunning);
  EXPECT_EQ(judge_state(facts_of({running, gone})).state, RunState::kCrashed);
  EXPECT_EQ(judge_state(facts_of({closed, closed})).state, RunState::kStopped);
  StateFacts whole = facts_of({closed, closed});
  whole.last_step = 100;
  EXPECT_EQ(judge_state(whole).state, RunState::kFinished);
}

TEST(RunState, ALivingRunWithoutStepsHasStalled) {
  StateFacts facts = facts_of({rank_in(ProcessState::kRunning)});
  facts.now = 1000 + 59;
  EXPECT_EQ(judge_state(facts).state, RunState::kRunning);
  facts.now = 1000 + 61;
  EXPECT_EQ(judge_state(facts).state, RunState::kStalled);
  facts.step_seconds = 100;
  EXPECT_EQ(judge_state(facts).state, RunState::kRunning);
  facts.findings = {{.kind = Finding::Kind::kStopped, .ranks = {3}, .text = "rank 3 is stopped"}};
  EXPECT_EQ(judge_state(facts).state, RunState::kStalled);
  EXPECT_EQ(judge_state(facts).why, "rank 3 is stopped");
}

TEST(RunState, TheCauseOfACrashIsTheFirstFinding) {
  StateFacts facts = facts_of({rank_in(ProcessState::kGone)});
  facts.findings = {{.kind = Finding::Kind::kDied, .ranks = {1}, .text = "rank 1 died"},
                    {.kind = Finding::Kind::kWaiting, .ranks = {0}, .text = "rank 0 waits"}};
  EXPECT_EQ(judge_state(facts).why, "rank 1 died");
}

TEST(RunState, TheEventLogOfAnEndDecidesFirst) {
  StateFacts facts = facts_of({rank_in(ProcessState::kGone)});
  facts.story = launch::Story{.has_ended = true, .end_cause = "killed"};
  EXPECT_EQ(judge_state(facts).state, RunState::kCrashed);
  facts.story->end_cause = "";
  EXPECT_EQ(judge_state(facts).state, RunState::kStopped);
  facts.last_step = 100;
  EXPECT_EQ(judge_state(facts).state, RunState::kFinished);
}

TEST(RunState, WithoutARecorderTheMetricsDecide) {
  StateFacts facts = facts_of({});
  EXPECT_EQ(judge_state(facts).state, RunState::kRunning);
  facts.now += 1000;
  EXPECT_EQ(judge_state(facts).state, RunState::kUnknown);
  facts.last_step = 100;
  EXPECT_EQ(judge_state(facts).state, RunState::kFinished);
  EXPECT_EQ(judge_state({}).state, RunState::kUnknown);
  // Of another host: alive while it writes.
  StateFacts foreign = facts_of({rank_in(ProcessState::kUnknown)});
  EXPECT_EQ(judge_state(foreign).state, RunState::kRunning);
  foreign.now += 1000;
  EXPECT_EQ(judge_state(foreign).state, RunState::kUnknown);
}

}  // namespace
}  // namespace trireme::watch
