#include "trireme/launch/membership/coordinator.h"

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/launch/membership/made_up_job.h"
#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

TEST(Coordinator, StartsWhenEnoughHostsAreThere) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a", 2);
  job.pass(1s);
  EXPECT_EQ(job.plan().phase, Phase::kGather);
  job.join("b", 3);
  job.pass(200ms);
  ASSERT_EQ(job.plan().phase, Phase::kRun);
  EXPECT_EQ(job.plan().epoch, 1);
  EXPECT_EQ(job.plan().num_ranks(), 5);
  EXPECT_EQ(job.plan().hosts[1].first_rank, 2);
  EXPECT_EQ(job.plan().store_host, "10.0.0.0");
}

TEST(Coordinator, SaysOnceForWhomItWaits) {
  MadeUpJob job({.min_hosts = 3, .max_hosts = 3, .join_timeout = 60s});
  job.join("a");
  job.pass(2s);
  EXPECT_EQ(job.count(EventKind::kNotice), 0);
  job.join("b");
  job.pass(20s);
  ASSERT_EQ(job.count(EventKind::kNotice), 1);
  EXPECT_EQ(job.events().back().text,
            "2 of 3 hosts are here; waiting for the others for up to 60 s (--join-timeout)");
}

TEST(Coordinator, RestartsAfterAWorkerWasKilled) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.pass(200ms);
  job.finish_step(7);
  job.pass(200ms);
  job.fail(1, -1, 9);
  job.decide();
  EXPECT_EQ(job.plan().phase, Phase::kLeave);
  EXPECT_NE(job.plan().reason.find("rank 1"), std::string::npos) << job.plan().reason;
  job.pass(500ms);
  EXPECT_EQ(job.plan().phase, Phase::kRun);
  EXPECT_EQ(job.plan().epoch, 2);
  EXPECT_EQ(job.plan().num_restarts, 1);
  job.finish_step(8);
  job.pass(100ms);
  // One recovery of the start, one after the failure.
  EXPECT_EQ(job.count(EventKind::kRecovery), 2);
  EXPECT_EQ(job.count(EventKind::kFailure), 1);
}

TEST(Coordinator, RecordsWhereAnEpochHasGoneOnFrom) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.pass(200ms);
  job.finish_step(1);
  job.pass(200ms);
  job.finish_step(17);
  job.fail(1, -1, 9);
  job.decide();
  job.worker(0).step = 18;  // finished before it saw that its peer is gone
  job.pass(500ms);
  ASSERT_EQ(job.plan().epoch, 2);
  job.finish_step(11);
  job.finish_step(13);  // before the leader looks
  job.pass(100ms);
  std::vector<int64_t> steps;
  for (const Event& event : job.events()) {
    const bool counts = event.kind == EventKind::kFailure || event.kind == EventKind::kStart ||
                        event.kind == EventKind::kRecovery;
    if (counts) steps.push_back(event.step);
  }
  EXPECT_EQ(steps, std::vector<int64_t>({-1, 1, 17, 18, 11}));
}

TEST(Coordinator, WaitsForTheLastWorkerBeforeTheNextEpoch) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(200ms);
  job.fail(0, -1, 9);
  job.decide();
  job.silence(b);  // still alive for a while, and its worker still runs
  job.pass(1s);
  EXPECT_EQ(job.plan().phase, Phase::kLeave);
}

TEST(Coordinator, NeverRestartsWhatTheUserMustFix) {
  for (const int code : {2, 4}) {
    MadeUpJob job;
    job.join("a");
    job.pass(200ms);
    job.fail(0, code);
    job.pass(200ms);
    EXPECT_EQ(job.plan().phase, Phase::kStop);
    EXPECT_EQ(job.plan().exit_code, code);
    EXPECT_TRUE(job.is_over());
  }
}

// 64 MB, as Docker gives, on one host of three.
TEST(Coordinator, GoesOnWithoutAHostThatLacksSharedMemory) {
  for (const int min_hosts : {2, 3}) {
    MadeUpJob job({.min_hosts = min_hosts, .max_hosts = 3});
    for (const char* name : {"a", "b", "c"}) job.join(name);
    job.pass(200ms);
    ASSERT_EQ(job.plan().hosts.size(), 3u);
    job.fail(0, 3);
    job.fail(1, 2);
    job.worker(1).message = "/dev/shm is too small: this group needs 100 bytes more";
    job.pass(500ms);
    if (min_hosts == 2) {
      EXPECT_EQ(job.plan().phase, Phase::kRun);
      EXPECT_EQ(job.plan().epoch, 2);
      EXPECT_EQ(job.plan().hosts.size(), 2u);
    } else {
      EXPECT_EQ(job.plan().phase, Phase::kStop);
      EXPECT_EQ(job.plan().exit_code, 2);
      EXPECT_NE(job.plan().reason.find("/dev/shm"), std::string::npos) << job.plan().reason;
    }
  }
}

TEST(Coordinator, SaysThatAProgramIsNotThere) {
  MadeUpJob job;
  job.join("a");
  job.pass(200ms);
  job.fail(0, 127);
  job.pass(200ms);
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_EQ(job.plan().exit_code, 2);
}

TEST(Coordinator, StopsAfterThreeDeathsAtOneStep) {
  MadeUpJob job({.budget = {.max_restarts = 100}});
  job.join("a");
  for (int death = 0; death < 3; ++death) {
    job.pass(120s);  // beyond every back-off
    ASSERT_EQ(job.plan().phase, Phase::kRun) << death;
    job.worker(0).step = 5;
    job.fail(0, -1, 11);
    job.decide();
  }
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_EQ(job.plan().exit_code, 3);
  EXPECT_NE(job.plan().reason.find("3 times"), std::string::npos) << job.plan().reason;
}

TEST(Coordinator, GoesOnWithoutAHostThatIsSilent) {
  MadeUpJob job({.min_hosts = 1, .max_hosts = 2, .last_call = 1s, .patience = 4s});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(1s);
  ASSERT_EQ(job.plan().hosts.size(), 2);
  job.silence(b);
  job.pass(3900ms);
  EXPECT_EQ(job.plan().epoch, 1);
  job.pass(600ms);
  EXPECT_EQ(job.plan().epoch, 2);
  ASSERT_EQ(job.plan().hosts.size(), 1);
  EXPECT_EQ(job.plan().hosts[0].name, "a");
}

TEST(Coordinator, EndsWhenAllAreDoneAndSparesAreIdle) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.pass(200ms);
  job.worker(0).state = WorkerState::kDone;
  job.pass(1s);
  EXPECT_EQ(job.plan().phase, Phase::kRun);
  job.worker(1).state = WorkerState::kSpare;
  job.pass(200ms);
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_EQ(job.plan().exit_code, 0);
  EXPECT_TRUE(job.is_over());
}

TEST(Coordinator, ReportsAFailureOfTheLastSave) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.pass(200ms);
  job.report(1).is_leaving = true;
  job.decide();
  job.fail(0, 4);
  job.decide();
  EXPECT_EQ(job.plan().exit_code, 4);
}

TEST(Coordinator, NeverEndsWellWhenAWorkerWasKilledBeforeItHadSaved) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.pass(200ms);
  job.report(1).is_leaving = true;
  job.decide();
  job.fail(0, -1, 9);
  job.decide();
  EXPECT_EQ(job.plan().exit_code, 3);
  EXPECT_NE(job.plan().reason.find("killed by signal 9"), std::string::npos);
}

TEST(Coordinator, LooksForTheCauseOfLostPeers) {
  MadeUpJob job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.pass(200ms);
  job.worker(0).state = WorkerState::kLeft;
  job.worker(0).message = "rank 1 is gone";
  job.decide();
  EXPECT_EQ(job.plan().phase, Phase::kRun);  // the cause may be on its way
  job.fail(1, -1, 9);
  job.decide();
  EXPECT_EQ(job.plan().phase, Phase::kLeave);
  EXPECT_NE(job.plan().reason.find("rank 1"), std::string::npos) << job.plan().reason;
}

// Whatever happens, in whatever order: no epoch begins while a worker of an older one runs, hosts
// of an epoch are alive, ranks are consecutive, and the job comes to an end.
TEST(Coordinator, KeepsItsPromisesInRandomHistories) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto draw = [&](int below) { return static_cast<int>(random() % below); };
    MadeUpJob job({.min_hosts = 1 + draw(2),
                   .max_hosts = 2 + draw(3),
                   .join_timeout = 20s,
                   .last_call = std::chrono::milliseconds(draw(2000)),
                   .patience = 4s,
                   .budget = {.max_restarts = 20}});
    std::vector<size_t> hosts;
    int epoch = 0;
    for (int round = 0; round < 60 && job.plan().phase != Phase::kStop; ++round) {
      const size_t any = hosts.empty() ? 0 : hosts[draw(static_cast<int>(hosts.size()))];
      switch (draw(7)) {
        case 0:
        case 1:
          if (hosts.size() < 8) hosts.push_back(job.join(concat("h", hosts.size()), 1 + draw(3)));
          break;
        case 2:
          if (!hosts.empty()) job.silence(any);
          break;
        case 3:
          if (!hosts.empty() && !job.report(any).workers.empty()) job.fail(any, -1, 9);
          break;
        case 4:
          if (!hosts.empty() && draw(4) == 0) job.report(any).is_leaving = true;
          break;
        default: job.finish_step(round + 1);
      }
      job.pass(std::chrono::milliseconds(100 + draw(3000)));
      if (job.plan().phase == Phase::kRun && job.plan().epoch != epoch) {
        EXPECT_GT(job.plan().epoch, epoch);
        epoch = job.plan().epoch;
        int next = 0;
        for (const PlannedHost& host : job.plan().hosts) {
          EXPECT_EQ(host.first_rank, next);
          next += host.num_ranks;
        }
      }
    }
    for (const size_t host : hosts) job.report(host).is_leaving = true;
    job.pass(60s);
    EXPECT_EQ(job.plan().phase, Phase::kStop) << "seed " << seed;
    EXPECT_TRUE(job.is_over()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace trireme::launch
