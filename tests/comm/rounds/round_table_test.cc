// The decisions about rounds, on a virtual clock.
#include "trireme/comm/rounds/round_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RoundOutcome::Kind;
using enum RoundStanding;

class RoundTableTest : public ::testing::Test {
 protected:
  static constexpr int kLease = 1000;

  RoundMember member(int place, int64_t step, const std::string& hash = "") const {
    return {.place = place,
            .num_places = 3,
            .process = "process of " + std::to_string(place),
            .run = "train.seed = 1\n",
            .step = step,
            .hash = hash.empty() ? "hash " + std::to_string(step) : hash,
            .last_step = 100};
  }
  RoundStanding enroll(int place, int64_t step, const std::string& hash = "") {
    return table_.enroll(member(place, step, hash), now_);
  }
  // Of a learner with two.
  RoundStanding enroll_rank(int place, int rank, int64_t step) {
    RoundMember each = member(place, step);
    each.rank = rank;
    each.num_ranks = 2;
    return table_.enroll(each, now_);
  }
  // The learner was started again.
  RoundStanding enroll_again(int place, int64_t step) {
    RoundMember again = member(place, step);
    again.process = "another of " + std::to_string(place);
    return table_.enroll(again, now_);
  }
  void offer(int place, int64_t step) { table_.offer(place, 0, step, now_); }
  RoundOutcome outcome(int place, int64_t step) { return table_.outcome(place, step, now_); }
  void pass(int ms) { now_ += milliseconds(ms); }
  // Time passes in which these say that they are there.
  void pass_with(int ms, const std::vector<int>& places) {
    for (int i = 0; i < ms; i += kLease / 4) {
      pass(kLease / 4);
      for (const int place : places) {
        table_.is_known(place, 0, "process of " + std::to_string(place), now_);
      }
    }
  }
  void enroll_all(int64_t step = 0) {
    for (const int place : {0, 1, 2}) enroll(place, step);
  }
  std::string refusal(const RoundMember& member) {
    try {
      table_.enroll(member, now_);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  RoundTable table_{{.places = 3,
                     .lease = milliseconds(kLease),
                     .patience = {.least = milliseconds(100), .deviations = 5, .fewest = 3}}};
  RoundTable::Time now_{};
};

TEST_F(RoundTableTest, ARoundIsDecidedOnceAllHaveOffered) {
  EXPECT_EQ(enroll(0, 0), kWaiting);
  EXPECT_EQ(enroll(1, 0), kWaiting);
  EXPECT_EQ(enroll(2, 0), kIn);
  EXPECT_EQ(enroll(0, 0), kIn);
  offer(2, 10);
  offer(0, 10);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kOpen);
  offer(1, 10);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kDecided);
  EXPECT_THAT(outcome(2, 10).places, ElementsAre(0, 1, 2));
  EXPECT_EQ(outcome(2, 10).donor, -1);
  EXPECT_EQ(table_.head_step(), 10);
}

TEST_F(RoundTableTest, WithFewerThanAllTheFirstRoundWaitsALease) {
  enroll(0, 0);
  pass(kLease - 1);
  EXPECT_EQ(enroll(1, 0), kWaiting);
  EXPECT_EQ(enroll(0, 0), kWaiting);
  pass(1);
  EXPECT_EQ(enroll(1, 0), kIn);
}

TEST_F(RoundTableTest, OneThatSaysNothingIsNotWaitedFor) {
  enroll_all();
  offer(0, 10);
  offer(1, 10);
  pass_with(kLease, {0, 1});
  EXPECT_EQ(outcome(0, 10).kind, Kind::kOpen);  // its lease ends now
  pass(1);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kDecided);
  EXPECT_THAT(outcome(1, 10).places, ElementsAre(0, 1));
  EXPECT_EQ(outcome(2, 10).kind, Kind::kBehind);
  EXPECT_EQ(enroll(2, 0), kBehind);
}

TEST_F(RoundTableTest, WhatOneHasOfferedBeforeItDiedCounts) {
  enroll_all();
  offer(2, 10);
  pass_with(kLease + 1, {0, 1});
  offer(0, 10);
  offer(1, 10);
  EXPECT_THAT(outcome(0, 10).places, ElementsAre(0, 1, 2));
}

TEST_F(RoundTableTest, APlaceThatIsTakenAgainOffersAnew) {
  enroll_all();
  offer(2, 10);
  RoundMember again = member(2, 0);
  again.process = "another";
  EXPECT_EQ(table_.enroll(again, now_), kIn);
  EXPECT_THAT(refusal(member(2, 0)), HasSubstr("was taken by another process"));
  offer(0, 10);
  offer(1, 10);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kOpen);
  offer(2, 10);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kDecided);
}

TEST_F(RoundTableTest, OneThatLeavesIsNotWaitedFor) {
  enroll_all();
  offer(0, 10);
  offer(1, 10);
  table_.leave(2, 0, "process of 2");
  EXPECT_EQ(outcome(0, 10).kind, Kind::kDecided);
}

TEST_F(RoundTableTest, AStragglerIsSkippedByWhatEarlierRoundsTook) {
  enroll_all();
  for (const int64_t step : {10, 20}) {
    for (const int place : {0, 1, 2}) {
      pass(10);
      offer(place, step);
    }
    enroll_all(step);
  }
  offer(0, 30);
  offer(1, 30);
  pass(100);
  EXPECT_EQ(outcome(0, 30).kind, Kind::kOpen);
  pass(1);
  EXPECT_EQ(outcome(0, 30).kind, Kind::kDecided);
  EXPECT_THAT(outcome(0, 30).places, ElementsAre(0, 1));
  EXPECT_EQ(outcome(0, 30).donor, 0);
  offer(2, 30);
  EXPECT_EQ(outcome(2, 30).kind, Kind::kBehind);
}

TEST_F(RoundTableTest, OneThatStillFetchesTheRoundIsWaitedForInTheNext) {
  enroll_all();
  for (const int place : {0, 1, 2}) offer(place, 10);
  enroll(0, 10);
  enroll(1, 10);
  offer(0, 20);
  offer(1, 20);
  EXPECT_EQ(outcome(0, 20).kind, Kind::kOpen);
  enroll(2, 10);
  offer(2, 20);
  EXPECT_THAT(outcome(0, 20).places, ElementsAre(0, 1, 2));
}

TEST_F(RoundTableTest, AJoinerGetsTheStateOfTheNextRoundAndIsInThen) {
  enroll(0, 40);
  enroll(1, 40);
  pass_with(kLease, {0, 1});
  EXPECT_EQ(enroll(0, 40), kIn);
  EXPECT_EQ(enroll(2, 0), kBehind);
  offer(0, 50);
  offer(1, 50);
  EXPECT_EQ(outcome(1, 50).donor, 0);
  enroll(0, 50);
  enroll(1, 50);
  EXPECT_EQ(enroll(2, 50), kIn);
  offer(0, 60);
  offer(1, 60);
  EXPECT_EQ(outcome(0, 60).kind, Kind::kOpen);
  offer(2, 60);
  EXPECT_THAT(outcome(0, 60).places, ElementsAre(0, 1, 2));
}

TEST_F(RoundTableTest, OneThatFetchesAStateIsWaitedFor) {
  enroll_all(40);
  pass_with(kLease + 250, {0, 1});
  offer(0, 50);
  offer(1, 50);
  enroll(0, 50);
  enroll(1, 50);
  EXPECT_EQ(enroll(2, 0), kBehind);
  table_.note_fetch(2);
  offer(0, 60);
  offer(1, 60);
  EXPECT_EQ(outcome(0, 60).kind, Kind::kOpen);
  EXPECT_EQ(enroll(2, 50), kIn);
  offer(2, 60);
  EXPECT_EQ(outcome(0, 60).kind, Kind::kDecided);
}

TEST_F(RoundTableTest, TheLastRoundLeavesItsStateToThoseThatAreAway) {
  enroll_all(90);
  pass_with(kLease + 250, {0, 1});
  offer(0, 100);
  offer(1, 100);
  enroll(0, 100);
  EXPECT_EQ(table_.last_donor(now_), 0);
  enroll(1, 100);
  for (const int place : {0, 1}) table_.leave(place, 0, "process of " + std::to_string(place));
  pass(10 * kLease);
  EXPECT_EQ(enroll(2, 90), kBehind);  // although nobody else is there
  EXPECT_FALSE(table_.is_finished());
  EXPECT_EQ(enroll(2, 100), kIn);
  EXPECT_FALSE(table_.is_finished());
  EXPECT_FALSE(table_.is_empty(now_));
  table_.leave(2, 0, "process of 2");
  EXPECT_TRUE(table_.is_finished());
  EXPECT_TRUE(table_.is_empty(now_));
}

TEST_F(RoundTableTest, AnotherGivesItsStateWhenTheDonorDies) {
  enroll_all(80);
  pass_with(kLease + 250, {0, 1});
  EXPECT_EQ(enroll_again(2, 0), kBehind);
  offer(0, 90);
  offer(1, 90);
  EXPECT_EQ(outcome(1, 90).donor, 0);
  pass_with(kLease + 250, {1});
  EXPECT_EQ(outcome(1, 90).donor, 1);
}

TEST_F(RoundTableTest, AfterTheLastRoundTheFirstThatIsThereGivesItsState) {
  enroll_all(90);
  for (const int place : {0, 1, 2}) offer(place, 100);
  EXPECT_EQ(table_.last_donor(now_), -1);
  enroll(0, 100);
  EXPECT_EQ(table_.last_donor(now_), 0);
  enroll(1, 100);
  pass_with(kLease + 250, {1});
  EXPECT_EQ(table_.last_donor(now_), 1);
  EXPECT_TRUE(table_.has_head(1, 100));
  EXPECT_FALSE(table_.has_head(2, 100));
}

TEST_F(RoundTableTest, OneThatHasDiedAfterTheLastRoundHasNotFinished) {
  enroll_all(90);
  for (const int place : {0, 1, 2}) offer(place, 100);
  enroll_all(100);
  for (const int place : {0, 1}) table_.leave(place, 0, "process of " + std::to_string(place));
  pass(2 * kLease);
  EXPECT_FALSE(table_.is_finished());
  EXPECT_EQ(enroll_again(2, 100), kIn);
  table_.leave(2, 0, "another of 2");
  EXPECT_TRUE(table_.is_finished());
  EXPECT_EQ(enroll_again(1, 90), kBehind);
  EXPECT_FALSE(table_.is_finished());
}

TEST_F(RoundTableTest, AServiceThatBeginsAnewLearnsTheHeadFromTheNewest) {
  enroll(0, 40);
  enroll(1, 40);
  EXPECT_EQ(enroll(2, 50), kIn);
  EXPECT_EQ(enroll(0, 40), kBehind);
  EXPECT_EQ(table_.head_step(), 50);
}

TEST_F(RoundTableTest, ANewerOneThatComesBeforeARoundIsTheHead) {
  enroll(0, 40);
  enroll(1, 40);
  pass_with(kLease, {0, 1});
  EXPECT_EQ(enroll(0, 40), kIn);
  offer(0, 50);
  EXPECT_EQ(enroll(2, 50), kIn);
  EXPECT_EQ(enroll(0, 40), kBehind);
}

TEST_F(RoundTableTest, ANewerOneThatComesAfterARoundIsRefused) {
  enroll(0, 40);
  enroll(1, 40);
  pass_with(kLease, {0, 1});
  enroll(0, 40);
  offer(0, 50);
  offer(1, 50);
  EXPECT_THAT(refusal(member(2, 60)), HasSubstr("the others have gone on without it"));
}

TEST_F(RoundTableTest, WithEveryPlaceThereTheNewestWeightsAreTheHeadEvenIfNewerOnesAreLost) {
  enroll_all(40);
  for (const int place : {0, 1, 2}) offer(place, 50);
  enroll(0, 50);
  pass(2 * kLease);              // all die
  for (int i = 0; i < 5; ++i) {  // the one that is away may have newer ones
    EXPECT_EQ(enroll_again(1, 30), kBehind);
    EXPECT_EQ(enroll_again(2, 40), kBehind);
    pass(kLease / 2);
  }
  enroll_again(0, 20);
  enroll_again(1, 30);
  EXPECT_EQ(enroll_again(2, 40), kIn);
  EXPECT_EQ(table_.head_step(), 40);
}

TEST_F(RoundTableTest, ARoundThatNobodyHasCompletedIsUndone) {
  enroll_all(40);
  for (const int place : {0, 1, 2}) offer(place, 50);
  EXPECT_EQ(table_.head_step(), 50);
  pass(2 * kLease);  // all die, and two come back
  for (const int place : {0, 1}) EXPECT_EQ(enroll_again(place, 40), kBehind);
  pass(kLease);
  for (const int place : {0, 1}) enroll_again(place, 40);
  EXPECT_EQ(table_.head_step(), 40);
  EXPECT_FALSE(table_.decided_step());
}

TEST_F(RoundTableTest, OtherWeightsAfterTheSameRoundAreRefused) {
  enroll_all();
  for (const int place : {0, 1, 2}) offer(place, 10);
  enroll(0, 10, "a");
  enroll(1, 10, "a");
  EXPECT_THAT(refusal(member(2, 10, "b")),
              HasSubstr("learner 2 has other weights after the round of step 10 than learner 0"));
}

TEST_F(RoundTableTest, OtherInitialWeightsAreRefused) {
  enroll(0, 0, "a");
  enroll(1, 0, "b");
  enroll(2, 0, "a");
  EXPECT_THAT(refusal(member(1, 0, "b")), HasSubstr("learner 1 has other weights"));
  offer(0, 10);
  offer(2, 10);
  EXPECT_THAT(outcome(0, 10).places, ElementsAre(0, 2));
}

TEST_F(RoundTableTest, WhoDoesNotBelongToTheOthersIsRefused) {
  enroll(0, 0);
  RoundMember other = member(1, 0);
  other.num_places = 4;
  EXPECT_THAT(refusal(other), HasSubstr("has parallel.learners = 4, and this service has 3"));
  other = member(1, 0);
  other.run = "train.seed = 2\n";
  EXPECT_THAT(refusal(other), HasSubstr("train.seed = 2, the other's train.seed = 1"));
  other = member(1, 0);
  other.last_step = 90;
  EXPECT_THAT(refusal(other), HasSubstr("trains to step 90"));
  other = member(1, 0);
  other.place = 3;
  EXPECT_THAT(refusal(other), HasSubstr("outer.place is 3; expected 0 to 2"));
  other = member(1, -1);
  EXPECT_NE(refusal(other), "");
}

TEST_F(RoundTableTest, AnotherRunMayFollowOnceAllHaveGone) {
  enroll_all(100);
  pass(kLease + 1);
  RoundMember next = member(0, 0);
  next.run = "train.seed = 2\n";
  EXPECT_EQ(table_.enroll(next, now_), kWaiting);
}

TEST_F(RoundTableTest, ALearnerOfSeveralRanksIsThereWithAllOfThem) {
  for (const int place : {0, 1, 2}) enroll_rank(place, 0, 0);
  for (const int place : {0, 1}) enroll_rank(place, 1, 0);
  EXPECT_EQ(enroll_rank(2, 1, 0), kIn);
  for (const int place : {0, 1, 2}) table_.offer(place, 0, 10, now_);
  for (const int place : {0, 1}) table_.offer(place, 1, 10, now_);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kOpen);
  table_.offer(2, 1, 10, now_);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kDecided);
}

TEST_F(RoundTableTest, NoHeadIsTakenFromALearnerInTheMiddleOfAWord) {
  for (const int place : {0, 1}) {
    for (const int rank : {0, 1}) enroll_rank(place, rank, 40);
  }
  enroll_rank(2, 0, 50);
  EXPECT_EQ(enroll_rank(2, 1, 40), kWaiting);
  EXPECT_EQ(enroll_rank(2, 1, 50), kIn);
  EXPECT_EQ(table_.head_step(), 50);
}

TEST_F(RoundTableTest, AWordThatWasOnItsWayForLongChangesNothing) {
  enroll_all();
  for (const int place : {0, 1, 2}) offer(place, 10);
  enroll(0, 10);
  EXPECT_EQ(enroll(0, 0), kIn);
}

}  // namespace
}  // namespace trireme::comm
