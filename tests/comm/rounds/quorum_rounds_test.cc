// Rounds that do not wait for all, on a virtual clock.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "trireme/base/error.h"
#include "trireme/comm/rounds/round_table.h"

namespace trireme::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = RoundOutcome::Kind;
using enum RoundStanding;

constexpr int kQuorumLease = 1000;  // ms
constexpr int kQuorumGrace = 50;

RoundTable::Options options_of(int places) {
  // No round ends because a learner is late by far.
  return {.places = places,
          .lease = milliseconds(kQuorumLease),
          .patience = {.least = std::chrono::hours(1000)}};
}

class QuorumRoundsTest : public ::testing::Test {
 protected:
  RoundMember member(int place, int64_t step) const {
    return {.place = place,
            .num_places = 3,
            .process = "process of " + std::to_string(place),
            .run = "train.seed = 1\n",
            .step = step,
            .hash = "hash " + std::to_string(step),
            .last_step = 30,
            .quorum = 2,
            .grace_ms = kQuorumGrace};
  }
  RoundStanding enroll(int place, int64_t step) { return table_.enroll(member(place, step), now_); }
  void enroll_all(int64_t step) {
    for (const int place : {0, 1, 2}) enroll(place, step);
  }
  void offer(int place, int64_t step) { table_.offer(place, 0, step, now_); }
  RoundOutcome outcome(int place, int64_t step) { return table_.outcome(place, step, now_); }
  void pass(int ms) { now_ += milliseconds(ms); }
  void pass_with(int ms, const std::vector<int>& places) {
    for (int i = 0; i < ms; i += kQuorumLease / 4) {
      pass(kQuorumLease / 4);
      for (const int place : places) {
        table_.is_known(place, 0, "process of " + std::to_string(place), now_);
      }
    }
  }

  RoundTable table_{options_of(3)};
  RoundTable::Time now_{};
};

TEST_F(QuorumRoundsTest, AGraceBeginsWithTheQuorum) {
  enroll_all(0);
  offer(0, 10);
  pass(500);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kOpen);
  offer(2, 10);
  pass(kQuorumGrace - 1);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kOpen);
  pass(1);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kDecided);
  EXPECT_THAT(outcome(2, 10).places, ElementsAre(0, 2));
  EXPECT_EQ(outcome(2, 10).donor, 0) << "learner 1 will need its weights";
  EXPECT_EQ(outcome(1, 10).kind, Kind::kBehind);
  EXPECT_FALSE(outcome(1, 10).has_counted);
}

TEST_F(QuorumRoundsTest, AllEndARoundAtOnce) {
  enroll_all(0);
  for (const int place : {2, 0}) offer(place, 10);
  EXPECT_EQ(outcome(0, 10).kind, Kind::kOpen);
  offer(1, 10);
  EXPECT_THAT(outcome(0, 10).places, ElementsAre(0, 1, 2));
}

TEST_F(QuorumRoundsTest, FewerThanAQuorumGoOnAlone) {
  enroll_all(0);
  offer(1, 10);
  pass_with(kQuorumLease + 250, {1});
  EXPECT_THAT(outcome(1, 10).places, ElementsAre(1));
}

TEST_F(QuorumRoundsTest, WhoHasOfferedAndDiedMakesNoQuorumSmaller) {
  enroll_all(0);
  offer(0, 10);
  pass_with(kQuorumLease + 250, {1, 2});
  EXPECT_EQ(outcome(1, 10).kind, Kind::kOpen) << "two others are there";
  offer(1, 10);
  pass(kQuorumGrace);
  EXPECT_THAT(outcome(1, 10).places, ElementsAre(0, 1));
}

TEST_F(QuorumRoundsTest, TheLastRoundWaitsForOneThatIsLate) {
  enroll_all(10);
  for (const int place : {0, 1}) offer(place, 20);
  pass(kQuorumGrace);
  ASSERT_THAT(outcome(0, 20).places, ElementsAre(0, 1));
  for (const int place : {0, 1}) enroll(place, 20);
  for (const int place : {0, 1}) offer(place, 30);
  pass(10 * kQuorumGrace);
  EXPECT_EQ(outcome(0, 30).kind, Kind::kOpen);
  EXPECT_EQ(outcome(2, 20).kind, Kind::kBehind);
  table_.note_fetch(2);
  EXPECT_EQ(enroll(2, 20), kIn);
  EXPECT_EQ(outcome(0, 30).kind, Kind::kOpen);
  offer(2, 30);
  EXPECT_THAT(outcome(0, 30).places, ElementsAre(0, 1, 2));
}

TEST_F(QuorumRoundsTest, TheLastRoundWaitsForNobodyThatIsGone) {
  enroll_all(10);
  for (const int place : {0, 1}) offer(place, 20);
  pass(kQuorumGrace);
  ASSERT_EQ(outcome(0, 20).kind, Kind::kDecided);
  for (const int place : {0, 1}) enroll(place, 20);
  for (const int place : {0, 1}) offer(place, 30);
  EXPECT_EQ(outcome(0, 30).kind, Kind::kOpen);
  pass_with(kQuorumLease + 250, {0, 1});
  EXPECT_THAT(outcome(0, 30).places, ElementsAre(0, 1));
}

TEST_F(QuorumRoundsTest, OneThatWasStoppedHearsThatItsMessageHasCounted) {
  enroll_all(0);
  for (const int place : {1, 2}) offer(place, 10);
  pass(kQuorumGrace);
  ASSERT_THAT(outcome(1, 10).places, ElementsAre(1, 2));
  enroll(0, 10);
  enroll(1, 10);
  for (const int place : {0, 1}) offer(place, 20);
  pass(kQuorumGrace);
  ASSERT_THAT(outcome(0, 20).places, ElementsAre(0, 1));
  EXPECT_EQ(outcome(2, 10).kind, Kind::kBehind);
  EXPECT_TRUE(outcome(2, 10).has_counted);
}

TEST_F(QuorumRoundsTest, AQuorumOfMoreThanAllIsRefused) {
  RoundMember greedy = member(0, 0);
  greedy.quorum = 4;
  EXPECT_THROW(table_.enroll(greedy, now_), ConfigError);
  greedy.quorum = 2;
  greedy.grace_ms = -1;
  EXPECT_THROW(table_.enroll(greedy, now_), ConfigError);
}

// Learners with paces of their own, which are stopped for longer than a lease, killed and started
// again at times that are drawn. What each has trained is counted in steps, and so are the messages
// of the rounds.
class DrawnLearners {
 public:
  static constexpr int64_t kEvery = 5;
  static constexpr int64_t kLastStep = 60;

  explicit DrawnLearners(uint64_t seed)
      : draw_(seed), places_(draw_.below(4) + 2), table_(options_of(places_)) {
    quorum_ = draw_.below(places_) + 1;
    grace_ = draw_.below(3) * 40;
    for (int place = 0; place < places_; ++place) {
      learners_.push_back({.pace = draw_.below(30) + 10});
      begin(place);
    }
  }

  // Whether all come to the last step.
  bool come_to_the_end() {
    for (; now_ < RoundTable::Time{std::chrono::hours(1)}; now_ += milliseconds(10)) {
      for (int i = 0; i < places_; ++i) act(draw_.below(places_));
      for (int place = 0; place < places_; ++place) disturb(place);
      if (std::ranges::all_of(learners_, [](const auto& each) { return each.is_done; })) {
        return true;
      }
    }
    return false;
  }

  int64_t trained() const { return trained_; }
  int64_t counted() const { return counted_; }
  int64_t lost() const { return lost_; }  // with a process that was killed, or stopped to the end
  int64_t num_late() const { return num_late_; }

 private:
  struct Learner {
    int pace = 1;  // ms for a step
    std::string process{};
    int64_t base = 0, step = 0;
    int64_t work = 0, late = 0;  // since the base; kept from before
    bool has_offered = false, is_behind = false, has_counted = false;
    bool is_done = false, is_alive = true;
    int disturbances = 2;
    RoundTable::Time next{};
  };

  RoundMember member(int place) const {
    const Learner& learner = learners_[static_cast<size_t>(place)];
    return {.place = place,
            .num_places = places_,
            .process = learner.process,
            .step = learner.base,
            .hash = std::to_string(learner.base),
            .last_step = kLastStep,
            .quorum = quorum_,
            .grace_ms = grace_};
  }
  void begin(int place) {
    Learner& learner = learners_[static_cast<size_t>(place)];
    learner.process = std::to_string(++num_processes_);
    learner.is_alive = true;
    learner.has_offered = learner.has_counted = false;
    learner.is_behind = true;  // until the table says otherwise
    learner.step = learner.base;
    learner.next = now_;
  }

  void disturb(int place) {
    Learner& learner = learners_[static_cast<size_t>(place)];
    if (learner.is_done || learner.next > now_ || learner.disturbances == 0) return;
    if (draw_.below(60) > 0) return;
    --learner.disturbances;
    learner.next = now_ + milliseconds(draw_.below(5 * kQuorumLease));
    if (draw_.below(2) == 0) return;  // stopped
    learner.is_alive = false;
    // What it has offered may count without it, or has counted before it heard of that.
    const std::pair<int, int64_t> message{place, learner.step};
    if (!learner.has_offered || !counted_messages_.contains(message)) {
      lost_ += learner.work + learner.late;
      if (learner.has_offered) orphans_.insert(message);
    }
    learner.work = learner.late = 0;
  }

  void act(int place) {
    Learner& learner = learners_[static_cast<size_t>(place)];
    if (learner.is_done || learner.next > now_) return;
    if (!learner.is_alive) begin(place);
    if (learner.is_behind) return settle(place);
    table_.is_known(place, 0, learner.process, now_);
    if (learner.has_offered) return hear(place);
    ++learner.step;
    ++learner.work;
    ++trained_;
    learner.next = now_ + milliseconds(learner.pace);
    if (learner.step % kEvery != 0 && learner.step != kLastStep) return;
    learner.has_offered = true;
    messages_[{place, learner.step}] = learner.work + learner.late;
    orphans_.erase({place, learner.step});
    table_.offer(place, 0, learner.step, now_);
  }

  void settle(int place) {
    Learner& learner = learners_[static_cast<size_t>(place)];
    const RoundStanding standing = table_.enroll(member(place), now_);
    if (standing == kIn) {  // perhaps as a round was undone
      learner.is_behind = false;
      return;
    }
    if (standing != kBehind || !state_ || state_ != table_.head_step()) return;
    table_.note_fetch(place);
    take(learner, learner.has_counted);
    learner.base = learner.step = *state_;
    if (table_.enroll(member(place), now_) != kIn) return;
    learner.is_behind = false;
    learner.is_done = learner.base == kLastStep;
    if (learner.is_done) lost_ += std::exchange(learner.late, 0);
  }

  void hear(int place) {
    Learner& learner = learners_[static_cast<size_t>(place)];
    table_.offer(place, 0, learner.step, now_);
    const RoundOutcome outcome = table_.outcome(place, learner.step, now_);
    if (outcome.kind == Kind::kOpen) return;
    learner.has_counted = outcome.has_counted;
    if (outcome.kind != Kind::kDecided) {
      learner.is_behind = true;
      return;
    }
    if (last_round_ < learner.step) count(outcome, learner.step);
    take(learner, /*has_counted=*/true);
    learner.base = learner.step;
    table_.enroll(member(place), now_);
    const bool is_last = learner.step == kLastStep;
    if (outcome.donor == place || is_last) state_ = learner.step;
    learner.is_done = is_last;
  }

  void take(Learner& learner, bool has_counted) {
    if (!has_counted && learner.work > 0) ++num_late_;
    learner.late = has_counted ? 0 : learner.late + learner.work;
    learner.work = 0;
    learner.has_offered = learner.has_counted = false;
  }

  void count(const RoundOutcome& outcome, int64_t step) {
    last_round_ = step;
    state_.reset();
    for (const int place : outcome.places) {
      const int64_t message = messages_.at({place, step});
      counted_ += message;
      counted_messages_.insert({place, step});
      if (orphans_.erase({place, step}) > 0) lost_ -= message;
    }
  }

  harness::Draw draw_;
  int places_;
  RoundTable table_;
  int quorum_ = 1;
  int64_t grace_ = 0;
  int num_processes_ = 0;
  RoundTable::Time now_{};
  std::vector<Learner> learners_;
  std::map<std::pair<int, int64_t>, int64_t> messages_;  // by place and step of the round
  std::set<std::pair<int, int64_t>> counted_messages_;
  std::set<std::pair<int, int64_t>> orphans_;  // of processes that were killed since
  std::optional<int64_t> state_;               // that a donor has given
  int64_t last_round_ = 0;
  int64_t trained_ = 0, counted_ = 0, lost_ = 0, num_late_ = 0;
};

TEST(QuorumRounds, WhateverComesWhenEachStepCountsOnceOrIsLostWithItsProcess) {
  int64_t num_late = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    DrawnLearners learners(seed);
    ASSERT_TRUE(learners.come_to_the_end()) << seed;
    EXPECT_EQ(learners.trained(), learners.counted() + learners.lost()) << seed;
    num_late += learners.num_late();
  }
  EXPECT_GT(num_late, 200);
}

}  // namespace
}  // namespace trireme::comm
