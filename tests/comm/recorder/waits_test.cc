#include "trireme/comm/recorder/diagnosis.h"

#include <gtest/gtest.h>

#include "tests/comm/observed.h"

namespace trireme::comm {
namespace {

using std::chrono::seconds;
using Ranks = std::vector<int>;

Waits waits_of(const std::vector<Observed>& ranks) {
  const std::vector<ObservedRank> all = observed(ranks);
  return find_waits(ObservedRun(all), seconds(5));
}

TEST(ObservedRun, JoinsTheGroupsOfAllRingsByNameMembersAndOrder) {
  auto ranks = run_of(3);
  // Rank 1 is in no "part"; the others made two of the same name, and rank 2 another one before.
  ranks[2].add_group("other", {2});
  for (const int rank : {0, 2}) {
    ranks[rank].add_group("part", {0, 2});
    ranks[rank].add_group("part", {0, 2});
  }
  const auto all = observed(ranks);
  const ObservedRun run(all);
  ASSERT_EQ(run.groups().size(), 4u);
  Record record;
  record.group = 2;
  const ObservedGroup* second = run.group_of(0, record);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->name, "part");
  EXPECT_EQ(second->members, (Ranks{0, 2}));
  EXPECT_EQ(second->index_of, (std::map<int, int>{{0, 2}, {2, 3}}));
  record.group = 9;
  EXPECT_EQ(run.group_of(0, record), nullptr);
}

TEST(ObservedRun, NowIsTheLastEventOfARunThatHasEnded) {
  auto ranks = run_of(2);
  EXPECT_EQ(ObservedRun(observed(ranks)).now(), at_second(100));
  ranks[0].close(3);
  EXPECT_EQ(ObservedRun(observed(ranks)).now(), at_second(100));
  ranks[1].process(ProcessState::kGone);
  EXPECT_EQ(ObservedRun(observed(ranks)).now(), at_second(3));
}

TEST(Waits, NobodyWaitsWhenAllCallsAreDone) {
  const Waits found = waits_of(run_of(3));
  EXPECT_TRUE(found.waits.empty());
  EXPECT_TRUE(found.mismatches.empty());
}

TEST(Waits, NamesWhoWaitsSinceWhenAndWhoIsAbsent) {
  auto ranks = run_of(4);
  ranks[2].call("all_reduce", 40);
  ranks[0].call("all_reduce", 30);
  const Waits found = waits_of(ranks);
  ASSERT_EQ(found.waits.size(), 1u);
  const Wait& wait = found.waits[0];
  EXPECT_EQ(wait.group, "world");
  EXPECT_EQ(wait.sequence, 2u);
  EXPECT_EQ(wait.operation, "all_reduce");
  EXPECT_EQ(wait.waiting, (Ranks{0, 2}));
  EXPECT_EQ(wait.absent, (Ranks{1, 3}));
  EXPECT_EQ(wait.since, at_second(30));
  EXPECT_FALSE(wait.has_given_up());
}

// Two hosts of two ranks: rank 3 was stopped before it took the result that the others have.
TEST(Waits, RanksThatWentOnWaitInACallOfTheirOwn) {
  auto ranks = run_of(4);
  for (const int rank : {0, 1}) {
    ranks[rank].call("all_reduce", 30, 31);
    ranks[rank].call("broadcast", 31);
  }
  for (const int rank : {2, 3}) ranks[rank].call("all_reduce", 30);
  EXPECT_EQ(waits_of(ranks).waits.size(), 1u)
      << "nobody is late in it, so it is all there is to say";
  ranks[3].process(ProcessState::kStopped);
  const Waits found = waits_of(ranks);
  ASSERT_EQ(found.waits.size(), 2u);
  EXPECT_EQ(found.waits[0].operation, "all_reduce");
  EXPECT_EQ(found.waits[0].waiting, (Ranks{2}));
  EXPECT_EQ(found.waits[0].absent, (Ranks{3}));
  EXPECT_EQ(found.waits[1].operation, "broadcast");
  EXPECT_EQ(found.waits[1].sequence, 3u);
  EXPECT_EQ(found.waits[1].waiting, (Ranks{0, 1}));
  EXPECT_EQ(found.waits[1].absent, (Ranks{2, 3}));
}

TEST(Waits, ShortOnesAreLeftOutUnlessThePeerCannotCome) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 99);
  EXPECT_TRUE(waits_of(ranks).waits.empty());
  ranks[1].process(ProcessState::kStopped);
  EXPECT_EQ(waits_of(ranks).waits.size(), 1u);
  ranks[1].process(ProcessState::kRunning).close(50);
  EXPECT_EQ(waits_of(ranks).waits.size(), 1u);
}

TEST(Waits, ShortOneThatHoldsUpAnAwaitedRankIsKept) {
  auto ranks = run_of(3);
  for (const int rank : {1, 2}) ranks[rank].add_group("part", {1, 2});
  ranks[0].call("all_reduce", 50);
  ranks[1].call("barrier", 98, -1, 1);
  const Waits found = waits_of(ranks);
  ASSERT_EQ(found.waits.size(), 2u);
  EXPECT_EQ(found.waits[1].group, "part");
  EXPECT_EQ(found.waits[1].waiting, Ranks{1});
  EXPECT_EQ(found.waits[1].absent, Ranks{2});
}

TEST(Waits, CallThatTheRingHasForgottenIsNotAbsent) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 50);
  ranks[1].ring().records.clear();
  ranks[1].ring().groups[0].num_collectives = 1;
  ASSERT_EQ(waits_of(ranks).waits.size(), 1u);
  EXPECT_EQ(waits_of(ranks).waits[0].absent, Ranks{1});
  ranks[1].ring().groups[0].num_collectives = 2;
  ASSERT_EQ(waits_of(ranks).waits.size(), 1u);
  EXPECT_TRUE(waits_of(ranks).waits[0].absent.empty());
}

TEST(Waits, RankStoppedInACallThatItsPeersHaveFinishedIsAbsentFromTheNext) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 40, 41);
  ranks[0].call("barrier", 42);
  ranks[1].call("all_reduce", 40);
  ranks[1].process(ProcessState::kStopped);
  ASSERT_EQ(waits_of(ranks).waits.size(), 1u);
  EXPECT_EQ(waits_of(ranks).waits[0].operation, "barrier");
  EXPECT_EQ(waits_of(ranks).waits[0].waiting, Ranks{0});
  EXPECT_EQ(waits_of(ranks).waits[0].absent, Ranks{1});
}

TEST(Waits, FailedCallWasWaitedForUntilItFailed) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 10);
  ranks[0].fail(15).close(16);
  ranks[1].call("all_reduce", 60);  // too late
  ranks[1].fail(60).close(61);
  const Waits found = waits_of(ranks);
  ASSERT_EQ(found.waits.size(), 1u);
  EXPECT_EQ(found.waits[0].waiting, Ranks{0});
  EXPECT_EQ(found.waits[0].absent, Ranks{1});
  EXPECT_EQ(found.waits[0].gave_up, at_second(15));
}

TEST(Waits, BackgroundCallThatHasNotBegunIsAbsent) {
  auto ranks = run_of(2);
  ranks[0].call("all_reduce", 10);
  ranks[1].call("all_reduce", 10).state = CallState::kIssued;
  ASSERT_EQ(waits_of(ranks).waits.size(), 1u);
  EXPECT_EQ(waits_of(ranks).waits[0].absent, Ranks{1});
}

TEST(Waits, MismatchHoldsBothCallsTheOddOneFirst) {
  auto ranks = run_of(3);
  ranks[0].call("all_reduce", 10);
  ranks[1].call("all_reduce", 10).elements = 33;
  ranks[2].call("all_reduce", 10);
  const Waits found = waits_of(ranks);
  EXPECT_TRUE(found.waits.empty());
  ASSERT_EQ(found.mismatches.size(), 1u);
  EXPECT_EQ(found.mismatches[0].sequence, 2u);
  ASSERT_EQ(found.mismatches[0].calls.size(), 2u);
  EXPECT_EQ(found.mismatches[0].calls[0].second, Ranks{1});
  EXPECT_EQ(found.mismatches[0].calls[0].first.elements, 33);
  EXPECT_EQ(found.mismatches[0].calls[1].second, (Ranks{0, 2}));
}

TEST(Waits, SizesThatMayDifferAreNoMismatch) {
  auto ranks = run_of(2);
  ranks[0].call("gather", 10, 11).elements = -1;
  ranks[1].call("gather", 10, 11).elements = 7;
  EXPECT_TRUE(waits_of(ranks).mismatches.empty());
  ranks[0].call("broadcast", 20, 21).peer = 0;
  ranks[1].call("broadcast", 20, 21).peer = 1;
  EXPECT_EQ(waits_of(ranks).mismatches.size(), 1u);
}

TEST(Waits, MessageWaitsForItsPeerUntilThePeerHasMadeTheOtherHalf) {
  auto ranks = run_of(3);
  ranks[0].message("recv", 1, 7, 10);
  ranks[1].message("send", 0, 8, 10, 11);  // another tag
  ranks[2].message("send", 0, 7, 10, 11);  // another rank
  Waits found = waits_of(ranks);
  ASSERT_EQ(found.waits.size(), 1u);
  EXPECT_EQ(found.waits[0].operation, "recv");
  EXPECT_EQ(found.waits[0].waiting, Ranks{0});
  EXPECT_EQ(found.waits[0].absent, Ranks{1});
  ranks[1].message("send", 0, 7, 20);
  found = waits_of(ranks);
  ASSERT_EQ(found.waits.size(), 2u);
  EXPECT_TRUE(found.waits[0].absent.empty());
  EXPECT_TRUE(found.waits[1].absent.empty());
}

TEST(Waits, RecvFromAnySourceNeedsOneSender) {
  auto ranks = run_of(3);
  ranks[0].message("recv", kAnySource, 7, 10);
  ASSERT_EQ(waits_of(ranks).waits.size(), 1u);
  EXPECT_EQ(waits_of(ranks).waits[0].absent, (Ranks{1, 2}));
  ranks[2].message("send", 0, 7, 20);
  for (const Wait& wait : waits_of(ranks).waits) EXPECT_TRUE(wait.absent.empty());
}

}  // namespace
}  // namespace trireme::comm
