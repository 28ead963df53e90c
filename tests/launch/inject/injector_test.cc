#include "trireme/launch/inject/injector.h"

#include <set>

#include <gtest/gtest.h>

namespace trireme::launch {
namespace {

using namespace std::chrono_literals;

// Ranks 0 and 1 on host a, 2 and 3 on host b; host c is a spare. All have finished `step`.
RunMoment moment(std::chrono::milliseconds since_start, int64_t step = 0) {
  return {.since_start = since_start,
          .steps = {{0, step}, {1, step}, {2, step}, {3, step}},
          .hosts = {{0, "a"}, {1, "a"}, {2, "b"}, {3, "b"}},
          .agents = {"a", "b", "c"}};
}

TEST(Injector, AtAStepMeansWhileTheRankIsInIt) {
  Injector injector(parse_injections("kill rank=1 at step=50"));
  RunMoment now = moment(1s, 48);
  now.steps[0] = 49;
  EXPECT_TRUE(injector.due(now).empty());
  now.steps[1] = 49;
  const auto due = injector.due(now);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].rank, 1);
  EXPECT_EQ(due[0].host, "a");
  EXPECT_TRUE(injector.due(now).empty());
  EXPECT_EQ(injector.num_left(), 0u);
}

TEST(Injector, StepOfAHostIsThatOfItsRanks) {
  Injector injector(parse_injections("kill host=b at step=10"));
  RunMoment now = moment(1s, 8);
  now.steps[0] = 20;
  EXPECT_TRUE(injector.due(now).empty());
  now.steps[3] = 9;
  EXPECT_EQ(injector.due(now).size(), 1u);
}

TEST(Injector, AfterATimeInASaveAndInARecovery) {
  Injector injector(
      parse_injections("kill rank=0 in save; kill rank=1 in recovery after 10s; stop rank=2 for 1s "
                       "after 5s"));
  EXPECT_TRUE(injector.due(moment(0s)).empty());
  RunMoment now = moment(5s);
  now.is_recovering = true;
  ASSERT_EQ(injector.due(now).at(0).rank, 2);
  now = moment(6s);
  now.is_saving = true;
  ASSERT_EQ(injector.due(now).at(0).rank, 0);
  EXPECT_TRUE(injector.due(moment(20s)).empty());
  now = moment(21s);
  now.is_recovering = true;
  ASSERT_EQ(injector.due(now).at(0).rank, 1);
}

TEST(Injector, MissingRankOrHostIsWaitedFor) {
  Injector injector(parse_injections("kill rank=7; kill host=c; fill host=d for 1s; join host=d"));
  const auto joins = injector.due(moment(0s));
  ASSERT_EQ(joins.size(), 1u);
  EXPECT_EQ(joins[0].fault, InjectedFault::kJoin);
  RunMoment now = moment(1s);
  now.hosts[7] = "c";
  const auto due = injector.due(now);
  ASSERT_EQ(due.size(), 2u);  // one worker by its rank, all of c's
  EXPECT_EQ(due[0].host, "c");
  EXPECT_EQ(injector.num_left(), 1u);
  EXPECT_TRUE(Injector(parse_injections("kill rank=any")).due({}).empty());
}

TEST(Injector, OpenTargetsAreDrawnAmongThoseThatAreThere) {
  std::set<int> ranks;
  std::set<std::string> workers, agents;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const auto due =
        Injector(parse_injections("kill rank=any; kill host=any; leave host=any"), seed)
            .due(moment(0s));
    ASSERT_EQ(due.size(), 3u);
    EXPECT_EQ(due[0].host, due[0].rank < 2 ? "a" : "b");
    ranks.insert(due[0].rank);
    workers.insert(due[1].host);
    agents.insert(due[2].host);
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(workers, (std::set<std::string>{"a", "b"}));
  EXPECT_EQ(agents, (std::set<std::string>{"a", "b", "c"}));
}

TEST(Injector, RandomMomentsDifferBySeedAndComeInTime) {
  std::set<int64_t> moments;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Injector injector(parse_injections("kill rank=0 within 1s"), seed);
    int64_t at = 0;
    while (injector.due(moment(std::chrono::milliseconds(at))).empty()) ++at;
    EXPECT_LT(at, 1000);
    moments.insert(at);
  }
  EXPECT_GT(moments.size(), 10u);
}

}  // namespace
}  // namespace trireme::launch
