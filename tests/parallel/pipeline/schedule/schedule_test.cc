#include "trireme/parallel/pipeline/schedule/schedule.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/pipeline/schedule/builders.h"
#include "trireme/parallel/pipeline/schedule/schedule_check.h"
#include "trireme/parallel/pipeline/schedule/timeline.h"

namespace trireme::parallel {
namespace {

constexpr double kRoundoff = 1e-12;

double bubble_of(const char* name, const ScheduleOptions& options) {
  return make_timeline(make_schedule(name, options), options.costs).bubble();
}

void expect_refused(const std::string& name, const ScheduleOptions& options,
                    const std::vector<std::string>& words) {
  try {
    make_schedule(name, options);
    FAIL() << name << ": no error";
  } catch (const ConfigError& error) {
    const std::string what = error.what();
    for (const std::string& word : words)
      EXPECT_NE(what.find(word), std::string::npos) << word << " is not in: " << what;
  }
}

// The formulas of the literature, for 2, 4 and 8 ranks and 4 to 64 microbatches.
// Source: published formulas as named at bubble_formula()
TEST(Schedule, GPipeAnd1F1BIdleTheShareOfTheirFormula) {
  const StageCosts times[] = {{1, 1, 1}, {2, 3, 1}, {0.7, 1.1, 0.3}};
  for (const int p : {1, 2, 4, 8}) {
    for (int m = 4; m <= 64; ++m) {
      for (const StageCosts& costs : times) {
        const ScheduleOptions options{
            .num_ranks = p, .num_microbatches = m, .costs = {.stages = {costs}}};
        const double expected = (p - 1.0) / (m + p - 1.0);
        EXPECT_NEAR(bubble_of("gpipe", options), expected, kRoundoff) << p << ' ' << m;
        EXPECT_NEAR(bubble_of("1f1b", options), expected, kRoundoff) << p << ' ' << m;
      }
    }
  }
}

TEST(Schedule, InterleavingDividesTheBubbleTimeByTheChunks) {
  for (const int p : {2, 4, 8}) {
    for (int m = p; m <= 64; m += p) {
      for (const int v : {1, 2, 3, 4}) {
        const ScheduleOptions options{.num_ranks = p, .num_microbatches = m, .num_chunks = v};
        const double ideal_share = (p - 1.0) / m / v;  // bubble over ideal time
        const double expected = ideal_share / (1 + ideal_share);
        EXPECT_NEAR(bubble_of("interleaved", options), expected, kRoundoff) << p << m << v;
        EXPECT_NEAR(bubble_of("breadth-first", options), expected, kRoundoff) << p << m << v;
      }
    }
  }
}

TEST(Schedule, BubbleFormulaIsWhatTheTimelineHas) {
  const StageCosts times[] = {{1, 1, 1}, {2, 2, 1.5}, {3, 2.5, 2}};
  for (const std::string& name : schedule_names()) {
    int compared = 0;
    for (const int p : {1, 2, 4, 8}) {
      for (int m = 1; m <= 64; m += m < 20 ? 1 : 11) {
        for (const StageCosts& costs : times) {
          const ScheduleOptions options{
              .num_ranks = p, .num_microbatches = m, .costs = {.stages = {costs}}};
          const double formula = bubble_formula(name, options);
          if (formula < 0) continue;
          const Schedule schedule = make_schedule(name, options);
          const double work = m * schedule.num_stages() / p * costs.total();
          const double cost = make_timeline(schedule, options.costs).cost();
          EXPECT_NEAR(cost - work, formula, kRoundoff * cost) << name << ' ' << p << ' ' << m;
          ++compared;
        }
      }
    }
    EXPECT_GT(compared, 50) << name;
  }
  EXPECT_LT(bubble_formula("1f1b", {.num_ranks = 2, .costs = {.communication = 1}}), 0);
}

TEST(Schedule, EveryRankFollowsOneOrderOfTransfers) {
  const Schedule schedule = make_schedule("1f1b", {.num_ranks = 2, .num_microbatches = 2});
  using K = ActionKind;
  const std::vector<Action> first = {{K::kForward, 0, 0},         {K::kSendActivation, 0, 0, 1},
                                     {K::kForward, 0, 1},         {K::kSendActivation, 0, 1, 1},
                                     {K::kRecvGradient, 0, 0, 1}, {K::kBackward, 0, 0},
                                     {K::kRecvGradient, 0, 1, 1}, {K::kBackward, 0, 1}};
  const std::vector<Action> second = {{K::kRecvActivation, 1, 0, 0}, {K::kForward, 1, 0},
                                      {K::kRecvActivation, 1, 1, 0}, {K::kBackward, 1, 0},
                                      {K::kSendGradient, 1, 0, 0},   {K::kForward, 1, 1},
                                      {K::kBackward, 1, 1},          {K::kSendGradient, 1, 1, 0}};
  EXPECT_EQ(schedule.actions[0], first);
  EXPECT_EQ(schedule.actions[1], second);
}

TEST(Schedule, EdgesMaySkipStages) {
  Schedule schedule = one_forward_one_backward(4, 6);
  schedule = with_transfers(schedule, {{0, 3}, {0, 1}, {1, 2}, {2, 3}, {1, 3}, {0, 3}});
  check_schedule(schedule);
  EXPECT_EQ(schedule.edges.size(), 5u);
  const auto& last = schedule.actions[3];
  EXPECT_EQ(std::ranges::count(last, ActionKind::kRecvActivation, &Action::kind), 3 * 6);
  EXPECT_EQ(std::ranges::count(last, ActionKind::kSendGradient, &Action::kind), 3 * 6);
  EXPECT_THROW(with_transfers(one_forward_one_backward(2, 1), {{1, 0}}), ConfigError);
  EXPECT_THROW(with_transfers(one_forward_one_backward(2, 1), {{0, 2}}), ConfigError);
}

TEST(Schedule, StagesOfOneRankNeedNoTransfer) {
  const Schedule schedule = make_schedule("interleaved", {.num_ranks = 1, .num_microbatches = 3});
  EXPECT_EQ(schedule.num_stages(), 2);
  for (const Action& action : schedule.actions[0]) EXPECT_TRUE(is_compute(action.kind));
}

TEST(Schedule, AnEvaluationKeepsTheOrderOfTheForwards) {
  const Schedule schedule = make_schedule("zero-bubble-v", {.num_ranks = 3, .num_microbatches = 5});
  const Schedule forward = forward_only(schedule);
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<Action> expected;
    for (const Action& action : schedule.actions[rank]) {
      if (action.kind == ActionKind::kForward || action.kind == ActionKind::kSendActivation ||
          action.kind == ActionKind::kRecvActivation)
        expected.push_back(action);
    }
    EXPECT_EQ(forward.actions[rank], expected);
  }
}

TEST(Schedule, ChunksAreCountedAlongTheModel) {
  const Schedule v = make_schedule("zero-bubble-v", {.num_ranks = 2});
  EXPECT_EQ(v.rank_of_stage, (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(v.chunk_of(0), 0);
  EXPECT_EQ(v.chunk_of(2), 1);
  EXPECT_EQ(v.chunk_of(3), 1);
  EXPECT_EQ(round_robin(2, 2), (std::vector<int>{0, 1, 0, 1}));
}

TEST(Schedule, FingerprintsDifferWhereSchedulesDo) {
  const Schedule schedule = make_schedule("1f1b", {.num_ranks = 2, .num_microbatches = 3});
  Schedule other = schedule;
  EXPECT_EQ(schedule.fingerprint(), other.fingerprint());
  std::swap(other.actions[0][0], other.actions[0][1]);
  EXPECT_NE(schedule.fingerprint(), other.fingerprint());
}

TEST(Schedule, ActionsReadAsSentences) {
  EXPECT_EQ(to_string({ActionKind::kBackwardWeight, 2, 5}),
            "weight part of the backward of microbatch 5 on stage 2");
  EXPECT_EQ(to_string({ActionKind::kSendGradient, 2, 5, 1}),
            "send of microbatch 5's gradient from stage 2 to stage 1");
  EXPECT_EQ(to_string({ActionKind::kRecvActivation, 2, 5, 1}),
            "recv of microbatch 5's activation from stage 1 to stage 2");
}

TEST(Schedule, WrongNamesAndNumbersAreRefused) {
  expect_refused("1f2b", {}, {"\"1f2b\"", "1f1b", "zero-bubble-v"});
  expect_refused("1f1b", {.num_ranks = 0}, {"ranks is 0", "1 to"});
  expect_refused("1f1b", {.num_microbatches = 0}, {"microbatches is 0"});
  expect_refused("1f1b", {.num_chunks = 2}, {"1f1b", "is 2", "expected 1"});
  expect_refused("zero-bubble-v", {.num_chunks = 3}, {"zero-bubble-v", "is 3", "expected 2"});
  expect_refused("interleaved", {.num_chunks = -1}, {"is -1"});
  expect_refused("gpipe", {.num_ranks = 3, .costs = {.stages = {{}, {}}}}, {"2 stages", "1 or 3"});
  expect_refused("zero-bubble", {.num_ranks = 4, .num_microbatches = 8, .memory_limit = 3},
                 {"memory limit of 3", "at least 4"});
}

}  // namespace
}  // namespace trireme::parallel
