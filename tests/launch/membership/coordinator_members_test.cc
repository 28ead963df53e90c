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

}  // namespace
}  // namespace trireme::launch
