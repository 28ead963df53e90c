#include "trireme/parallel/server/state/shard_state.h"

#include <limits>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/harness/draw.h"
#include "tests/harness/tensors.h"
#include "tests/parallel/server/cluster.h"
#include "trireme/base/error.h"

namespace trireme::parallel::server_test {
namespace {

using Verdict = ShardState::Verdict;

const std::vector<ServedParameter> kParameters{{"a", 6, 1}, {"b", 4, 2, at::kFloat, true}};

ShardState make(int64_t staleness) {
  const std::vector<Piece> pieces = key_ranges(kParameters, std::vector<double>{1});
  return {pieces, 0, {staleness}, momentum_pieces(kParameters)};
}

Frame event(EventKind kind, uint32_t worker, int64_t step, uint32_t incarnation = 1) {
  Frame frame;
  frame.header = {.kind = FrameKind::kEvent,
                  .part = static_cast<uint16_t>(kind),
                  .worker = worker,
                  .incarnation = incarnation,
                  .step = step,
                  .learning_rate = 0.5};
  return frame;
}

Frame push(uint32_t worker, int64_t step, double value, uint32_t incarnation = 1) {
  Frame frame = event(EventKind::kPush, worker, step, incarnation);
  frame.payload = bytes_of(at::full({6}, value, at::kFloat));
  return frame;
}

Frame push_row(uint32_t worker, int64_t step, int64_t row) {
  Frame frame = event(EventKind::kPush, worker, step);
  frame.header.piece = 1;
  frame.header.num_rows = 1;
  frame.payload = at::cat({bytes_of(at::tensor({row})), bytes_of(at::ones({2}))});
  return frame;
}

Frame pull_state(uint32_t piece, uint32_t index, std::vector<int64_t> range = {}) {
  Frame frame;
  frame.header = {.kind = FrameKind::kPullState, .piece = piece, .num_rows = index};
  if (!range.empty()) frame.payload = bytes_of(at::tensor(range));
  return frame;
}

void apply_new(ShardState& state, const Frame& frame) {
  ASSERT_EQ(state.judge(frame), Verdict::kNew);
  state.apply(frame);
}

TEST(ShardState, WaitsForEveryWorkerWhenSynchronous) {
  ShardState state = make(0);
  for (uint32_t worker : {0U, 1U}) apply_new(state, event(EventKind::kAdvance, worker, 0));
  apply_new(state, push(1, 1, 2));
  EXPECT_EQ(state.version(0), 0);
  EXPECT_TRUE(state.may_pull(0, 0, 1));
  EXPECT_FALSE(state.may_pull(1, 0, 2));
  apply_new(state, push(0, 1, 1));
  EXPECT_EQ(state.version(0), 1);
  EXPECT_TRUE(state.may_pull(1, 0, 2));
}

TEST(ShardState, BoundsHowFarAWorkerIsAhead) {
  ShardState state = make(2);
  for (uint32_t worker : {0U, 1U}) apply_new(state, event(EventKind::kAdvance, worker, 0));
  for (int64_t step = 1; step <= 3; ++step) {
    EXPECT_TRUE(state.may_pull(0, 0, step));
    EXPECT_EQ(state.steps_ahead(0, 0, step), step - 1);
    apply_new(state, push(0, step, 1));
    EXPECT_EQ(state.version(0), step) << "applied at once";
  }
  EXPECT_FALSE(state.may_pull(0, 0, 4));
  apply_new(state, push(1, 1, 1));
  EXPECT_TRUE(state.may_pull(0, 0, 4));
  EXPECT_FALSE(state.may_pull(0, 0, 5)) << "its own push is missing";
}

TEST(ShardState, KnowsDuplicatesAndStrangers) {
  ShardState state = make(0);
  EXPECT_EQ(state.judge(push(0, 1, 1)), Verdict::kStranger);
  apply_new(state, event(EventKind::kAdvance, 0, 0));
  EXPECT_EQ(state.judge(event(EventKind::kAdvance, 0, 0)), Verdict::kDuplicate);
  apply_new(state, push(0, 1, 1));
  EXPECT_EQ(state.judge(push(0, 1, 1)), Verdict::kDuplicate);
  apply_new(state, event(EventKind::kAdvance, 0, -1, 2));
  EXPECT_EQ(state.members().at(0).base, 1) << "nobody else is there: after the last step";
  EXPECT_EQ(state.judge(push(0, 2, 1)), Verdict::kStranger) << "of the dead incarnation";
  EXPECT_EQ(state.judge(event(EventKind::kLeave, 0, 0)), Verdict::kDuplicate);
  apply_new(state, push(0, 2, 1, 2));
}

TEST(ShardState, ALeaverHoldsNobodyUpAndItsPushesCount) {
  ShardState state = make(0);
  for (uint32_t worker : {0U, 1U, 2U}) apply_new(state, event(EventKind::kAdvance, worker, 0));
  apply_new(state, push(1, 1, 4));
  apply_new(state, push(0, 1, 1));
  const std::vector<Frame> departures = state.departures({{0, 1}, {2, 1}});
  ASSERT_EQ(departures.size(), 1U);
  apply_new(state, departures[0]);
  EXPECT_EQ(state.version(0), 0) << "worker 2 is still missing";
  apply_new(state, push(2, 1, 2));
  EXPECT_EQ(state.version(0), 1);
  const at::Tensor expected = (initial_weights(kParameters[0], 0) - 0.5 * 7.0).view({-1});
  harness::assert_close(state.weights(0).view(at::kFloat), expected, 1e-6, 0, "1 + 4 + 2");
}

TEST(ShardState, AJoinerStartsWithTheSlowestOther) {
  ShardState state = make(3);
  for (uint32_t worker : {0U, 1U}) apply_new(state, event(EventKind::kAdvance, worker, 0));
  for (const auto& [worker, step] : {std::pair{0U, 1}, {0U, 2}, {1U, 1}}) {
    apply_new(state, push(worker, step, 1));
    Frame rows = push_row(worker, step, 0);
    apply_new(state, rows);
  }
  apply_new(state, event(EventKind::kAdvance, 5, -1));
  EXPECT_EQ(state.members().at(5).base, 1);
  EXPECT_TRUE(state.may_pull(5, 0, 2));
  apply_new(state, event(EventKind::kAdvance, 5, 2));
  EXPECT_TRUE(state.may_pull(5, 0, 3));
}

TEST(ShardState, AJoinerDoesNotRepeatAStepThatAPieceHasHad) {
  ShardState state = make(0);
  apply_new(state, event(EventKind::kAdvance, 0, 0));
  apply_new(state, push(0, 1, 1));  // piece 0; that of piece 1 is on its way
  EXPECT_EQ(state.version(0), 1);
  apply_new(state, event(EventKind::kAdvance, 5, -1));
  EXPECT_EQ(state.members().at(5).base, 1);
  EXPECT_EQ(state.judge(push(5, 1, 1)), Verdict::kDuplicate);
  apply_new(state, push_row(0, 1, 0));
  EXPECT_EQ(state.version(1), 1) << "the joiner begins with step 2";
}

TEST(ShardState, RefusesPushesOfOtherSizes) {
  ShardState state = make(0);
  apply_new(state, event(EventKind::kAdvance, 0, 0));
  Frame frame = push(0, 1, 1);
  frame.payload = frame.payload.narrow(0, 0, 20);
  EXPECT_THROW(state.judge(frame), ConfigError);
  frame.payload.reset();
  EXPECT_THROW(state.judge(frame), ConfigError);
  EXPECT_THROW(state.judge(push(0, 0, 1)), ConfigError);
  frame = push(0, 1, 1);
  frame.header.piece = 9;
  EXPECT_THROW(state.judge(frame), ConfigError);
  EXPECT_THROW(state.judge(push_row(0, 1, 4)), ConfigError);
  EXPECT_THROW(state.judge(push_row(0, 1, -1)), ConfigError);
  frame = push_row(0, 1, 0);
  frame.header.num_rows = 1'000'000;
  EXPECT_THROW(state.judge(frame), ConfigError);
  frame = event(static_cast<EventKind>(9), 0, 1);
  EXPECT_THROW(state.judge(frame), ConfigError);
  EXPECT_THROW(state.may_pull(0, 7, 0), ConfigError);
}

TEST(ShardState, RefusesStepsThatNoRunHas) {
  ShardState state = make(2);
  apply_new(state, event(EventKind::kAdvance, 0, 0));
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  for (const int64_t step : {-kFar - 1, int64_t{-2}, kFar}) {
    EXPECT_THROW(state.judge(event(EventKind::kAdvance, 0, step)), ConfigError) << step;
    EXPECT_THROW(state.judge(push(0, step, 1)), ConfigError) << step;
    Frame pull = event(EventKind::kPush, 0, step);
    pull.header.kind = FrameKind::kPull;
    EXPECT_THROW(state.check_pull(pull), ConfigError) << step;
  }
}

TEST(ShardState, ASnapshotGoesOnWithTheSameBits) {
  for (const int64_t staleness : {int64_t{0}, int64_t{2}, kAsynchronous}) {
    ShardState state = make(staleness), copy = make(staleness);
    for (uint32_t worker : {0U, 1U, 2U}) apply_new(state, event(EventKind::kAdvance, worker, 0));
    harness::Draw draw(7);
    const auto some_events = [&](int64_t from, int64_t to, auto&& take) {
      for (int64_t step = from; step < to; ++step) {
        for (const uint32_t worker : {2U, 0U, 1U}) {
          if (step == to - 1 && worker == 1) continue;  // leaves pushes waiting
          take(push(worker, step, 0.1 * static_cast<double>(draw.below(10))));
          take(push_row(worker, step, draw.below<int64_t>(4)));
        }
      }
    };
    some_events(1, 5, [&](const Frame& frame) { apply_new(state, frame); });
    const std::vector<Frame> parts = state.snapshot();
    for (const Frame& part : parts) EXPECT_EQ(copy.load(part), &part == &parts.back());
    EXPECT_EQ(copy.sequence(), state.sequence());
    some_events(5, 9, [&](const Frame& frame) {
      apply_new(state, frame);
      apply_new(copy, frame);
    });
    for (const uint32_t piece : {0U, 1U}) {
      EXPECT_EQ(copy.version(piece), state.version(piece));
      harness::assert_same_bits(copy.weights(piece), state.weights(piece), "weights");
      harness::assert_same_bits(*copy.state(pull_state(piece, 0)),
                                *state.state(pull_state(piece, 0)), "momentum");
      EXPECT_FALSE(state.state(pull_state(piece, 1)));
    }
  }
}

TEST(ShardState, GivesSomeRowsOfAnOptimizersTensor) {
  ShardState state = make(0);
  apply_new(state, event(EventKind::kAdvance, 0, 0));
  apply_new(state, push_row(0, 1, 2));
  const at::Tensor all = *state.state(pull_state(1, 0));
  harness::assert_same_bits(*state.state(pull_state(1, 0, {1, 2})),
                            all.view({-1, 2}).narrow(0, 1, 2).contiguous(), "rows");
  EXPECT_EQ(state.state(pull_state(1, 0, {all.size(0), 0}))->numel(), 0);
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& range :
       {std::vector<int64_t>{-1, 1}, {0, all.size(0) + 1}, {1, kFar}, {kFar, 1}, {0}, {0, 1, 2}}) {
    EXPECT_THROW((void)state.state(pull_state(1, 0, range)), ConfigError);
  }
}

TEST(ShardState, RefusesPartsOfOtherSnapshots) {
  ShardState state = make(0), copy = make(0);
  for (Frame part : state.snapshot()) {
    if (!part.payload.defined() || part.payload.numel() == 0) continue;
    part.payload = at::cat({part.payload, at::zeros({3}, at::kByte)});
    EXPECT_THROW(copy.load(part), ConfigError);
  }
  Frame part;
  part.header.part = 77;
  EXPECT_THROW(copy.load(part), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel::server_test
