#include "trireme/launch/watchdog/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

Budget::Time at(std::chrono::milliseconds time) { return Budget::Time(1h + time); }

std::vector<Fault> death(int64_t step, Action action = Action::kRestart) {
  return {{.kind = FaultKind::kCrash,
           .rank = 1,
           .step = step,
           .evidence = "rank 1 was killed",
           .action = action}};
}

// A program of somebody else's may well have come further each time.
TEST(Budget, DeathsAtUnknownStepsAreNotDeathsAtOneStep) {
  Budget budget({.max_restarts = 5, .deaths_at_one_step = 1});
  std::vector<Fault> faults = death(0);
  faults[0].step.reset();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(budget.decide(faults, at(i * 1min)).may_restart) << i;
  const RestartDecision decision = budget.decide(faults, at(5min));
  EXPECT_FALSE(decision.may_restart);
  EXPECT_THAT(decision.text, HasSubstr("--max-restarts"));
}

TEST(Budget, RestartsThatHelpDoNotWait) {
  Budget budget({.max_restarts = 100});
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(budget.decide(death(10 + i), at(i * 1s)).delay, 0ms) << i;
  }
}

TEST(Budget, FirstRestartIsAtOnceAndCloseOnesWithoutProgressWaitLongerEachTime) {
  Budget budget({.max_restarts = 100, .first_delay = 500ms, .most_delay = 3s, .calm_after = 60s});
  std::vector<int64_t> delays;
  for (int i = 0; i < 6; ++i) {
    const RestartDecision decision = budget.decide(death(10 - i), at(i * 10s));
    EXPECT_TRUE(decision.may_restart);
    delays.push_back(decision.delay.count());
  }
  EXPECT_EQ(delays, (std::vector<int64_t>{0, 500, 1000, 2000, 3000, 3000}));
  // After a calm time it begins anew.
  EXPECT_EQ(budget.decide(death(90), at(50s + 60s)).delay, 0ms);
}

TEST(Budget, IsSpentAndRefills) {
  Budget budget({.max_restarts = 2, .refill_after = 1h});
  EXPECT_TRUE(budget.decide(death(1), at(0s)).may_restart);
  EXPECT_TRUE(budget.decide(death(2), at(10min)).may_restart);
  EXPECT_EQ(budget.num_left(at(20min)), 0);
  const RestartDecision refused = budget.decide(death(3), at(20min));
  EXPECT_FALSE(refused.may_restart);
  EXPECT_THAT(refused.text, HasSubstr("all 2 restarts of the budget are used (--max-restarts)"));
  EXPECT_THAT(refused.text, HasSubstr("rank 1 was killed"));
  EXPECT_EQ(budget.num_left(at(60min)), 1);
  EXPECT_TRUE(budget.decide(death(4), at(60min)).may_restart);
}

TEST(Budget, WithoutRefillItStaysSpent) {
  Budget budget({.max_restarts = 1, .refill_after = 0s});
  EXPECT_TRUE(budget.decide(death(1), at(0s)).may_restart);
  EXPECT_FALSE(budget.decide(death(2), at(1000h)).may_restart);
  Budget none({.max_restarts = 0});
  EXPECT_FALSE(none.decide(death(1), at(0s)).may_restart);
}

TEST(Budget, ThirdDeathInARowAtOneStepStopsTheRun) {
  Budget budget;
  EXPECT_TRUE(budget.decide(death(7), at(0s)).may_restart);
  EXPECT_TRUE(budget.decide(death(7), at(10s)).may_restart);
  const RestartDecision third = budget.decide(death(7), at(20s));
  EXPECT_FALSE(third.may_restart);
  EXPECT_THAT(third.text, HasSubstr("died 3 times in a row after step 7"));
}

TEST(Budget, ProgressBetweenDeathsCountsAnew) {
  Budget budget;
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(budget.decide(death(7), at(i * 1s)).may_restart);
  EXPECT_TRUE(budget.decide(death(8), at(3s)).may_restart);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(budget.decide(death(7), at(i * 1s + 4s)).may_restart);
}

TEST(Budget, ManyWorkersThatDieTogetherAreOneDeath) {
  Budget budget;
  std::vector<Fault> host = death(7);
  for (int rank = 2; rank < 8; ++rank) host.push_back(death(7 - rank % 2)[0]);
  EXPECT_TRUE(budget.decide(host, at(0s)).may_restart);
  EXPECT_TRUE(budget.decide(host, at(1s)).may_restart);
  EXPECT_EQ(budget.num_left(at(2s)), 8);
}

TEST(Budget, RefusesWhatNoRestartHelpsAndCountsNoWarning) {
  Budget budget;
  const RestartDecision stop = budget.decide(death(1, Action::kStop), at(0s));
  EXPECT_FALSE(stop.may_restart);
  EXPECT_THAT(stop.text, HasSubstr("no restart: rank 1 was killed"));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(budget.decide(death(1, Action::kWarn), at(1s)).may_restart);
  }
  EXPECT_EQ(budget.num_left(at(2s)), 10);
}

TEST(ExcludedHosts, ComeBackAfterTheirTime) {
  ExcludedHosts hosts;
  hosts.add("b", "replicas differ", at(10s));
  hosts.add("c", "hung", at(20s));
  EXPECT_TRUE(hosts.contains("b", at(9s)));
  EXPECT_FALSE(hosts.contains("a", at(9s)));
  ASSERT_EQ(hosts.list(at(9500ms)).size(), 2u);
  EXPECT_EQ(hosts.list(at(9500ms))[0].host, "b");
  EXPECT_EQ(hosts.list(at(9500ms))[0].reason, "replicas differ");
  EXPECT_EQ(hosts.list(at(9500ms))[0].left, 1s);
  EXPECT_FALSE(hosts.contains("b", at(10s)));
  EXPECT_EQ(hosts.list(at(10s)).size(), 1u);
  hosts.remove("c");
  EXPECT_TRUE(hosts.list(at(10s)).empty());
}

}  // namespace
}  // namespace trireme::launch
