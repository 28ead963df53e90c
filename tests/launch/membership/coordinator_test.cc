#include "trireme/launch/membership/coordinator.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

// Agents that obey the plan at once, in made-up time.
class Job {
 public:
  explicit Job(CoordinatorOptions options = {}) : coordinator_(with_program(options), now_) {}

  // Index of the host.
  size_t join(const std::string& name, int num_workers = 1) {
    SeenHost host;
    host.report = {.id = concat(name, "-", hosts_.size()),
                   .name = name,
                   .address = concat("10.0.0.", hosts_.size()),
                   .port = 1000 + static_cast<int>(hosts_.size()),
                   .num_workers = num_workers,
                   .program = "steps = 1"};
    host.seen = now_;
    hosts_.push_back(host);
    is_silent_.push_back(false);
    return hosts_.size() - 1;
  }

  // Time passes; hosts that are not silent report, and obey.
  void pass(std::chrono::milliseconds time) {
    for (auto left = time; left > 0ms; left -= 100ms) {
      now_ += std::min<std::chrono::milliseconds>(left, 100ms);
      for (size_t i = 0; i < hosts_.size(); ++i) {
        if (is_silent_[i]) continue;
        hosts_[i].seen = now_;
        obey(hosts_[i].report);
      }
      decide();
    }
  }

  void decide() {
    coordinator_.decide(hosts_, now_);
    for (Event& event : coordinator_.take_events()) events_.push_back(std::move(event));
  }

  void silence(size_t host) { is_silent_[host] = true; }
  HostReport& report(size_t host) { return hosts_[host].report; }
  WorkerReport& worker(size_t host, size_t index = 0) { return report(host).workers[index]; }
  void fail(size_t host, int code, int signal = 0) {
    worker(host).state = WorkerState::kFailed;
    worker(host).code = code;
    worker(host).signal = signal;
    worker(host).message = "it failed";
  }
  void finish_step(int64_t step) {
    for (SeenHost& host : hosts_) {
      for (WorkerReport& worker : host.report.workers) worker.step = step;
    }
  }
  const Plan& plan() const { return coordinator_.plan(); }
  bool is_over() const { return coordinator_.is_over(hosts_, now_); }
  int64_t count(EventKind kind) const {
    return std::ranges::count_if(events_, [&](const Event& event) { return event.kind == kind; });
  }
  const std::vector<Event>& events() const { return events_; }

 private:
  static CoordinatorOptions with_program(CoordinatorOptions options) {
    options.program = "steps = 1";
    options.job = "job";
    return options;
  }

  void obey(HostReport& report) {
    const Plan& plan = coordinator_.plan();
    const PlannedHost* place = plan.find(report.id);
    if (plan.phase == Phase::kRun && report.epoch != plan.epoch) {
      report.epoch = plan.epoch;
      report.workers.clear();
      for (int i = 0; place != nullptr && i < place->num_ranks; ++i) {
        report.workers.push_back({.rank = place->first_rank + i});
      }
    } else if (plan.phase == Phase::kLeave) {
      report.epoch = plan.epoch;
      for (WorkerReport& worker : report.workers) {
        if (worker.state == WorkerState::kRunning) worker.state = WorkerState::kLeft;
      }
    } else if (plan.phase == Phase::kStop) {
      report.is_ending = true;
      for (WorkerReport& worker : report.workers) {
        if (worker.state != WorkerState::kFailed) worker.state = WorkerState::kDone;
      }
    }
  }

  Clock::time_point now_ = Clock::time_point() + 1h;
  Coordinator coordinator_;
  std::vector<SeenHost> hosts_;
  std::vector<bool> is_silent_;
  std::vector<Event> events_;
};

TEST(Coordinator, StartsWhenEnoughHostsAreThere) {
  Job job({.min_hosts = 2, .max_hosts = 2});
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

TEST(Coordinator, GivesMoreHostsTimeBeforeTheFirstEpoch) {
  Job job({.min_hosts = 1, .max_hosts = 3, .last_call = 2s});
  job.join("a");
  job.pass(1s);
  EXPECT_EQ(job.plan().phase, Phase::kGather);
  job.join("b");
  job.pass(1500ms);
  EXPECT_EQ(job.plan().phase, Phase::kRun);
  EXPECT_EQ(job.plan().hosts.size(), 2);
}

TEST(Coordinator, OrdersHostsByNodeRank) {
  Job job({.min_hosts = 3, .max_hosts = 3});
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
  Job job({.min_hosts = 3, .max_hosts = 3, .join_timeout = 5s});
  job.join("a");
  job.join("b");
  job.pass(6s);
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_EQ(job.plan().exit_code, 3);
  EXPECT_NE(job.plan().reason.find("2 of 3 hosts came within 5 s (a, b)"), std::string::npos)
      << job.plan().reason;
}

TEST(Coordinator, RefusesAHostWithAnotherProgramAndGoesOnWithoutIt) {
  Job job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms});
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
  Job job({.min_hosts = 3, .max_hosts = 3});
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

TEST(Coordinator, RestartsAfterAWorkerWasKilled) {
  Job job({.min_hosts = 2, .max_hosts = 2});
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

TEST(Coordinator, WaitsForTheLastWorkerBeforeTheNextEpoch) {
  Job job({.min_hosts = 2, .max_hosts = 2});
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
    Job job;
    job.join("a");
    job.pass(200ms);
    job.fail(0, code);
    job.pass(200ms);
    EXPECT_EQ(job.plan().phase, Phase::kStop);
    EXPECT_EQ(job.plan().exit_code, code);
    EXPECT_TRUE(job.is_over());
  }
}

TEST(Coordinator, SaysThatAProgramIsNotThere) {
  Job job;
  job.join("a");
  job.pass(200ms);
  job.fail(0, 127);
  job.pass(200ms);
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_EQ(job.plan().exit_code, 2);
}

TEST(Coordinator, StopsAfterThreeDeathsAtOneStep) {
  Job job({.budget = {.max_restarts = 100}});
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
  Job job({.min_hosts = 1, .max_hosts = 2, .last_call = 1s, .patience = 4s});
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

TEST(Coordinator, NeverTakesASilentHostBackUnderItsOldId) {
  Job job({.min_hosts = 1, .max_hosts = 2, .last_call = 1s, .patience = 4s});
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
  Job job({.min_hosts = 1, .max_hosts = 2, .last_call = 1s});
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
  Job job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms});
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
  Job job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms, .patience = 4s});
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
  Job job({.min_hosts = 1, .max_hosts = 2, .num_spares = 1, .last_call = 0ms, .patience = 4s});
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
  Job job({.min_hosts = 1, .max_hosts = 1, .num_spares = 1, .last_call = 0ms});
  job.join("a");
  job.join("b");
  job.pass(10s);
  EXPECT_EQ(job.plan().hosts.size(), 1);
  EXPECT_TRUE(job.plan().spares.empty());
}

TEST(Coordinator, LetsAHostLeaveIfEnoughRemain) {
  Job job({.min_hosts = 1, .max_hosts = 2, .last_call = 0ms});
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
  Job job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  const size_t b = job.join("b");
  job.pass(200ms);
  job.report(b).is_leaving = true;
  job.decide();
  EXPECT_EQ(job.plan().phase, Phase::kStop);
  EXPECT_TRUE(job.plan().is_graceful);
  EXPECT_EQ(job.plan().exit_code, 0);
}

TEST(Coordinator, EndsWhenAllAreDoneAndSparesAreIdle) {
  Job job({.min_hosts = 2, .max_hosts = 2});
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
  Job job({.min_hosts = 2, .max_hosts = 2});
  job.join("a");
  job.join("b");
  job.pass(200ms);
  job.report(1).is_leaving = true;
  job.decide();
  job.fail(0, 4);
  job.decide();
  EXPECT_EQ(job.plan().exit_code, 4);
}

TEST(Coordinator, LooksForTheCauseOfLostPeers) {
  Job job({.min_hosts = 2, .max_hosts = 2});
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
    Job job({.min_hosts = 1 + draw(2),
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
