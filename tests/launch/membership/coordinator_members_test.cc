// Which hosts take part, and which wait.
#include "trireme/launch/membership/coordinator.h"

#include <chrono>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/launch/membership/made_up_job.h"

namespace trireme::launch {
namespace {

TEST(Coordinator, GivesMoreHostsTimeBeforeTheFirstEpoch) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 3, .last_call = 2s});
  job.join("a");
  job.pass(1s);
  EXPECT_EQ(job.plan().phase, Phase::kGather);
  job.join("b");
  job.pass(1500ms);
  EXPECT_EQ(job.plan().phase, Phase::kRun);
  EXPECT_EQ(job.plan().hosts.size(), 2);
}

TEST(Coordinator, OrdersHostsByNodeRank) {
  MadeUpJob job({.min_hosts = 3, .max_hosts = 3});
  job.report(job.join("a")).node_rank = 2;
  job.join("b");
  job.report(job.join("c")).node_rank = 0;
  job.pass(200ms);
  ASSERT_EQ(job.plan().hosts.size(), 3);
  EXPECT_EQ(job.plan().hosts[0].name, "c");
  EXPECT_EQ(job.plan().hosts[1].name, "a");
  EXPECT_EQ(job.plan().hosts[2].name, "b");
}

TEST(Coordinator, NamesTheHostsThatCameWhenTooFewDid) {
  MadeUpJob job({.min_hosts = 3, .max_hosts = 3, .join_timeout = 5s});
  job.join("a");
  job.join("b");
  job.pass(6s);
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_EQ(job.plan().exit_code, 3);
  EXPECT_NE(job.plan().reason.find("2 of 3 hosts came within 5 s (a, b)"), std::string::npos)
      << job.plan().reason;
}

TEST(Coordinator, RefusesAHostWithAnotherProgramAndGoesOnWithoutIt) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms});
  job.join("a");
  job.pass(200ms);
  job.report(job.join("b")).program = "steps = 2";
  job.pass(10s);
  EXPECT_EQ(job.plan().epoch, 1);
  ASSERT_NE(job.plan().find_refused("b-1"), nullptr);
  EXPECT_EQ(
      job.plan().find_refused("b-1")->reason,
      "host b runs something else than the leader: steps is 2, and 1 on the leader; start the "
      "same on all hosts");
}

TEST(Coordinator, NoticesClocksAndNamesThatMislead) {
  MadeUpJob job({.min_hosts = 3, .max_hosts = 3});
  job.join("a");
  const auto hour_ago = std::chrono::system_clock::now().time_since_epoch() - 1h;
  job.report(job.join("b")).clock_us =
      std::chrono::duration_cast<std::chrono::microseconds>(hour_ago).count();
  job.join("a");
  job.pass(200ms);
  std::string texts;
  for (const Event& event : job.events()) {
    if (event.kind == EventKind::kNotice) texts += event.text + "\n";
  }
  EXPECT_NE(texts.find("the clock of host b is 3600 s behind the leader's"), std::string::npos)
      << texts;
  EXPECT_NE(texts.find("host a answers from two addresses, 10.0.0.0 and 10.0.0.2"),
            std::string::npos)
      << texts;
}

TEST(Coordinator, NeverTakesASilentHostBackUnderItsOldId) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 2, .last_call = 1s, .patience = 4s});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(1s);
  job.silence(b);
  job.pass(5s);
  job.join("b");  // the same host, as a new member
  job.pass(10s);
  ASSERT_EQ(job.plan().hosts.size(), 2);
  EXPECT_EQ(job.plan().hosts[1].id, "b-2");
}

TEST(Coordinator, TakesAHostThatWasCutOffBackUnderItsNewId) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 2, .last_call = 1s});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(1s);
  job.report(b).id = "b-anew";
  job.report(b).epoch = 0;
  job.report(b).workers.clear();
  job.pass(10s);
  EXPECT_EQ(job.plan().phase, Phase::kRun);
  ASSERT_EQ(job.plan().hosts.size(), 2);
  EXPECT_EQ(job.plan().hosts[1].id, "b-anew");
}

TEST(Coordinator, LetsAHostJoinAtTheEndOfAStep) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms});
  job.join("a");
  job.pass(200ms);
  job.finish_step(3);
  job.pass(100ms);
  job.join("b");
  job.decide();
  EXPECT_EQ(job.plan().phase, Phase::kLeave);
  EXPECT_TRUE(job.plan().is_graceful);
  job.pass(300ms);
  EXPECT_EQ(job.plan().epoch, 2);
  EXPECT_EQ(job.plan().num_ranks(), 2);
  EXPECT_EQ(job.plan().num_restarts, 0);
}

TEST(Coordinator, KeepsSurplusHostsAsSpares) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms, .patience = 4s});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(200ms);
  job.join("c");
  job.pass(10s);
  EXPECT_EQ(job.plan().epoch, 1);
  EXPECT_EQ(job.plan().find("c-2"), nullptr);
  job.silence(b);
  job.pass(5s);
  ASSERT_EQ(job.plan().hosts.size(), 2);
  EXPECT_EQ(job.plan().hosts[1].name, "c");
}

TEST(Coordinator, KeepsTheFirstSurplusHostsWarm) {
  MadeUpJob job(
      {.min_hosts = 1, .max_hosts = 2, .num_spares = 1, .last_call = 0ms, .patience = 4s});
  job.report(job.join("a")).keeps_workers = true;
  const size_t b = job.join("b");
  job.pass(200ms);
  const size_t c = job.join("c");
  job.join("d");
  job.pass(1s);
  EXPECT_EQ(job.plan().epoch, 1);
  EXPECT_EQ(job.plan().spares, std::vector<std::string>({"c-2"}));
  job.silence(b);
  job.pass(5s);
  ASSERT_EQ(job.plan().hosts.size(), 2);
  EXPECT_EQ(job.plan().hosts[1].name, "c");
  EXPECT_EQ(job.plan().spares, std::vector<std::string>({"d-3"}));
  job.report(c).is_leaving = true;
  job.pass(1s);
  EXPECT_EQ(job.plan().hosts[1].name, "d");
  EXPECT_TRUE(job.plan().spares.empty());
}

TEST(Coordinator, KeepsNoHostWarmForAProgramThatCannotWait) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 1, .num_spares = 1, .last_call = 0ms});
  job.join("a");
  job.join("b");
  job.pass(10s);
  EXPECT_EQ(job.plan().hosts.size(), 1);
  EXPECT_TRUE(job.plan().spares.empty());
}

TEST(Coordinator, LetsAHostLeaveIfEnoughRemain) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(200ms);
  job.report(b).is_leaving = true;
  job.report(b).notice = "signal 15";
  job.decide();
  EXPECT_EQ(job.plan().phase, Phase::kLeave);
  EXPECT_TRUE(job.plan().is_graceful);
  job.pass(300ms);
  ASSERT_EQ(job.plan().phase, Phase::kRun);
  EXPECT_EQ(job.plan().hosts.size(), 1);
}

TEST(Coordinator, StopsWellIfTooFewRemain) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(200ms);
  job.report(b).is_leaving = true;
  job.decide();
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_TRUE(job.plan().is_graceful);
  EXPECT_EQ(job.plan().exit_code, 0);
}

// It was paused, its workers too, and goes on where it was.
TEST(Coordinator, TellsAHostThatWasCountedOutOnceItIsHeardAgain) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms, .patience = 4s});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(1s);
  ASSERT_EQ(job.plan().hosts.size(), 2);
  const std::string id = job.report(b).id;
  job.silence(b);
  job.pass(6s);
  EXPECT_EQ(job.plan().epoch, 2);
  EXPECT_EQ(job.plan().find(id), nullptr);
  EXPECT_TRUE(job.plan().counted_out.empty());  // nobody would read it
  job.wake(b);
  job.pass(200ms);
  EXPECT_TRUE(job.plan().has_counted_out(id));
  EXPECT_EQ(job.plan().find(id), nullptr);
  // It comes back as another one.
  job.report(b).id = "b-anew";
  job.report(b).epoch = 0;
  job.report(b).workers.clear();
  job.pass(10s);
  EXPECT_TRUE(job.plan().counted_out.empty());
  EXPECT_NE(job.plan().find("b-anew"), nullptr);
}

TEST(Coordinator, RefusesAHostWhoseNodeRankIsTaken) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2, .last_call = 0ms, .patience = 4s});
  job.report(job.join("a")).node_rank = 0;
  job.report(job.join("b")).node_rank = 1;
  job.pass(1s);
  const size_t c = job.join("c");
  job.report(c).node_rank = 1;
  job.pass(3s);
  EXPECT_EQ(job.plan().find_refused(job.report(c).id), nullptr);  // b may be about to go
  job.pass(2s);
  ASSERT_NE(job.plan().find_refused(job.report(c).id), nullptr);
  EXPECT_EQ(job.plan().find_refused(job.report(c).id)->reason,
            "host c has --node-rank 1, as has b; give each agent another one");
  EXPECT_EQ(job.plan().epoch, 1);
}

// The agent was started again before the leader had counted out the one that was killed.
TEST(Coordinator, TakesAHostBackThatWasStartedAgain) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2, .last_call = 0ms, .patience = 4s});
  job.report(job.join("a")).node_rank = 0;
  const size_t b = job.join("b");
  job.report(b).node_rank = 1;
  job.pass(1s);
  job.silence(b);
  const size_t again = job.join("b");
  job.report(again).node_rank = 1;
  job.pass(10s);
  EXPECT_NE(job.plan().find(job.report(again).id), nullptr);
}

// Ranks that have lost each other, and none failed by itself: hosts a, b, ...
MadeUpJob job_that_lost_peers(const CoordinatorOptions& options, size_t num_hosts,
                              const std::vector<std::pair<size_t, size_t>>& cuts) {
  MadeUpJob job(options);
  for (size_t i = 0; i < num_hosts; ++i) job.join(std::string(1, static_cast<char>('a' + i)));
  for (const auto& [from, to] : cuts) job.cut(from, to);
  job.pass(200ms);
  EXPECT_EQ(job.plan().hosts.size(), num_hosts);
  for (size_t i = 0; i < num_hosts; ++i) {
    job.worker(i).state = WorkerState::kLeft;
    job.worker(i).message = "lost rank 0";
  }
  job.pass(2s);
  return job;
}

std::vector<std::string> names(const Plan& plan) {
  std::vector<std::string> found;
  for (const PlannedHost& host : plan.hosts) found.push_back(host.name);
  return found;
}

TEST(CoordinatorLinks, ADeadLinkLeavesOneOfItsTwoHostsOut) {
  for (const auto& cuts : std::vector<std::vector<std::pair<size_t, size_t>>>{
           {{1, 2}}, {{2, 1}}, {{1, 2}, {2, 1}}}) {  // whoever sees it
    const MadeUpJob job = job_that_lost_peers({.min_hosts = 2, .max_hosts = 3}, 3, cuts);
    EXPECT_EQ(job.plan().phase, Phase::kRun);
    EXPECT_EQ(job.plan().epoch, 2);
    EXPECT_EQ(names(job.plan()), (std::vector<std::string>{"a", "b"}));
    EXPECT_NE(job.plan().reason.find("does not reach"), std::string::npos) << job.plan().reason;
    EXPECT_EQ(job.plan().num_restarts, 1);
  }
}

TEST(CoordinatorLinks, TheHostOfMostDeadLinksIsLeftOut) {
  const MadeUpJob job = job_that_lost_peers({.min_hosts = 2, .max_hosts = 4}, 4, {{1, 2}, {3, 1}});
  EXPECT_EQ(names(job.plan()), (std::vector<std::string>{"a", "c", "d"}));
}

TEST(CoordinatorLinks, TooFewHostsWithoutTheLinkEndTheJobWithBothNames) {
  const MadeUpJob job = job_that_lost_peers({.min_hosts = 3, .max_hosts = 3}, 3, {{1, 2}});
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_EQ(job.plan().exit_code, 3);
  EXPECT_NE(job.plan().reason.find("b does not reach c at 10.0.0.2 (no answer)"), std::string::npos)
      << job.plan().reason;
}

TEST(CoordinatorLinks, LivingLinksChangeNothing) {
  const MadeUpJob job = job_that_lost_peers({.min_hosts = 2, .max_hosts = 3}, 3, {});
  EXPECT_EQ(job.plan().epoch, 2);
  EXPECT_EQ(job.plan().hosts.size(), 3u);
  EXPECT_EQ(job.plan().links_asked, 1);
}

TEST(CoordinatorLinks, NobodyIsAskedWhenTheCauseIsKnown) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.report(0).keeps_workers = true;
  job.pass(200ms);
  job.fail(1, -1, 9);
  job.pass(2s);
  EXPECT_EQ(job.plan().epoch, 2);
  job.fail(1, 1);
  job.pass(2s);
  EXPECT_EQ(job.plan().links_asked, 0);
}

TEST(CoordinatorLinks, AHostThatDoesNotAnswerIsNotWaitedForForever) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.pass(200ms);
  for (const size_t host : {0, 1}) job.worker(host).state = WorkerState::kLeft;
  job.report(1).links_known = 100;  // it never answers the question that is asked
  job.pass(3s);
  EXPECT_EQ(job.plan().epoch, 1);
  job.pass(4s);
  EXPECT_EQ(job.plan().epoch, 2);
  EXPECT_EQ(job.plan().hosts.size(), 2u);
}

// Its hour is over, and the link is still dead: nobody begins an epoch to find that out.
TEST(CoordinatorLinks, AHostThatComesBackIsLookedAtFirst) {
  MadeUpJob job = job_that_lost_peers(
      {.min_hosts = 2, .max_hosts = 3, .policy = {.exclusion = std::chrono::seconds(10)}}, 3,
      {{1, 2}});
  ASSERT_EQ(job.plan().hosts.size(), 2u);
  job.finish_step(5);
  job.pass(20s);
  EXPECT_EQ(names(job.plan()), (std::vector<std::string>{"a", "b"}));
  job.mend();
  job.finish_step(6);
  job.pass(20s);
  EXPECT_EQ(names(job.plan()), (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace
}  // namespace trireme::launch
