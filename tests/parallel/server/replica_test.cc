#include "trireme/parallel/server/replica.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/parallel/server/cluster.h"

namespace trireme::parallel::server_test {
namespace {

constexpr PeerId kWorkerPeer = 7, kSuccessorPeer = 8;

struct Port : ReplicaPort {
  void send(PeerId peer, Frame frame, int64_t) override { sent.emplace_back(peer, frame); }
  void send_to_worker(uint32_t, Frame frame) override { to_workers.push_back(frame); }
  void tell_director(Frame) override {}
  void log(const LogRecord&) override {}
  void count_staleness(int64_t) override {}
  // What went to a peer since the last call.
  std::vector<FrameKind> take(PeerId peer) {
    std::vector<FrameKind> kinds;
    for (const auto& [to, frame] : std::exchange(sent, {})) {
      if (to == peer) kinds.push_back(frame.header.kind);
    }
    return kinds;
  }
  std::vector<std::pair<PeerId, Frame>> sent;
  std::vector<Frame> to_workers;
};

View view_of(uint32_t number, std::vector<uint32_t> chain) {
  return {.number = number, .servers = {}, .workers = {{0, 1}}, .chains = {std::move(chain)}};
}

Frame push(int64_t step) {
  Frame frame;
  frame.header = {.kind = FrameKind::kEvent,
                  .part = static_cast<uint16_t>(EventKind::kPush),
                  .worker = 0,
                  .incarnation = 1,
                  .step = step,
                  .learning_rate = 0.5};
  frame.payload = bytes_of(at::full({4}, 2.0, at::kFloat));
  return frame;
}

Frame advance(uint32_t worker, uint32_t incarnation) {
  Frame frame;
  frame.header = {.kind = FrameKind::kEvent,
                  .part = static_cast<uint16_t>(EventKind::kAdvance),
                  .worker = worker,
                  .incarnation = incarnation,
                  .step = -1};
  return frame;
}

// A copy of a shard with one piece of four elements.
std::unique_ptr<Replica> make_replica(Port& port) {
  const std::vector<ServedParameter> parameters{{"a", 4, 1}};
  const std::vector<Piece> pieces = key_ranges(parameters, std::vector<double>{1});
  return std::make_unique<Replica>(
      std::make_unique<ShardState>(pieces, 0, Consistency{kAsynchronous},
                                   momentum_pieces(parameters)),
      0, port, nullptr);
}

// The only copy.
std::unique_ptr<Replica> make_head(Port& port) {
  auto head = make_replica(port);
  head->start({{0, 1}});
  head->take_place(view_of(1, {1}), 1);
  return head;
}

TEST(Replica, ATailAcknowledgesWhatItApplies) {
  Port port;
  const auto head = make_head(port);
  head->on_event(kWorkerPeer, push(1));
  ASSERT_EQ(port.to_workers.size(), 1U);
  EXPECT_EQ(port.to_workers[0].header.kind, FrameKind::kDone);
  EXPECT_EQ(port.to_workers[0].header.step, 1);
}

// Its last words come by another connection than the view without it.
TEST(Replica, AWorkerThatTheViewHasLeftOutTakesPartNoMore) {
  Port port;
  const auto head = make_head(port);
  head->on_event(kWorkerPeer, advance(5, 1));
  ASSERT_EQ(port.sent.size(), 1U);
  EXPECT_EQ(port.sent[0].second.header.part, static_cast<uint16_t>(Refusal::kWorker));
  EXPECT_EQ(port.take(kWorkerPeer), std::vector{FrameKind::kRefused});
  head->on_event(kWorkerPeer, advance(0, 2));
  EXPECT_EQ(port.take(kWorkerPeer), std::vector{FrameKind::kRefused}) << "another incarnation";
  EXPECT_TRUE(port.to_workers.empty());
}

// The worker sends it once, to the chain as it is.
TEST(Replica, AnEventThatANewCopyGetsInItsSnapshotIsAcknowledged) {
  Port port;
  const auto head = make_head(port);
  head->take_place(view_of(2, {1, 2}), 1);
  head->connect_successor(kSuccessorPeer, 2, 1);
  head->on_event(kWorkerPeer, push(1));
  EXPECT_TRUE(port.to_workers.empty());
  EXPECT_EQ(port.take(kSuccessorPeer), std::vector{FrameKind::kAttach});
  Frame have;
  have.header = {.kind = FrameKind::kHave, .sequence = -1};
  head->on_have(kSuccessorPeer, have);
  const std::vector<FrameKind> kinds = port.take(kSuccessorPeer);
  ASSERT_GE(kinds.size(), 2U);
  EXPECT_EQ(kinds.back(), FrameKind::kConfirm);
  EXPECT_EQ(std::ranges::count(kinds, FrameKind::kConfirm), 1);
  EXPECT_EQ(std::ranges::count(kinds, FrameKind::kEvent), 0);
  head->on_event(kWorkerPeer, push(2));
  EXPECT_EQ(port.take(kSuccessorPeer), std::vector{FrameKind::kEvent});
}

// A neighbour of an older view would send it to a dead successor.
TEST(Replica, AConfirmationWaitsForTheViewInWhichTheWorkerAsked) {
  Port port;
  const auto head = make_head(port);
  head->on_event(kWorkerPeer, push(1));
  head->take_place(view_of(2, {1, 2}), 1);
  head->connect_successor(kSuccessorPeer, 2, 1);
  Frame have;
  have.header = {.kind = FrameKind::kHave, .sequence = 2};
  head->on_have(kSuccessorPeer, have);
  (void)port.take(kSuccessorPeer);
  Frame again = push(1);
  again.header.view = 2;
  head->on_event(kWorkerPeer, std::move(again));
  ASSERT_EQ(port.sent.size(), 1U);
  EXPECT_EQ(port.sent[0].second.header.kind, FrameKind::kConfirm);
  EXPECT_EQ(port.sent[0].second.header.view, 2U);
}

// The worker asks once, the chain as it is.
TEST(Replica, ANewCopyAnswersPullsOfStatesOnceItIsWhole) {
  constexpr PeerId kPredecessorPeer = 9;
  Port port;
  const auto head = make_head(port), spare = make_replica(port);
  spare->take_place(view_of(2, {1, 2}), 2);
  Frame attach;
  attach.header = {.kind = FrameKind::kAttach, .view = 2, .piece = 1};
  spare->on_attach(kPredecessorPeer, attach);
  Frame pull;
  pull.header = {.kind = FrameKind::kPullState};
  spare->on_pull_state(kWorkerPeer, pull);
  EXPECT_TRUE(port.take(kWorkerPeer).empty());
  head->take_place(view_of(2, {1, 2}), 1);
  head->connect_successor(kSuccessorPeer, 2, 1);
  Frame have;
  have.header = {.kind = FrameKind::kHave, .sequence = -1};
  head->on_have(kSuccessorPeer, have);
  for (const auto& [peer, part] : std::exchange(port.sent, {})) {
    if (part.header.kind == FrameKind::kSnapshot) spare->on_snapshot(kPredecessorPeer, part);
  }
  EXPECT_EQ(port.take(kWorkerPeer), std::vector{FrameKind::kState});
}

TEST(Replica, AnEventThatACopyLacksIsSentAgainAndNotConfirmed) {
  Port port;
  const auto head = make_head(port);
  head->take_place(view_of(2, {1, 2}), 1);
  head->connect_successor(kSuccessorPeer, 2, 1);
  head->on_event(kWorkerPeer, push(1));
  head->on_event(kWorkerPeer, push(2));
  (void)port.take(kSuccessorPeer);
  Frame have;
  have.header = {.kind = FrameKind::kHave, .sequence = 2};  // the advance, and the first push
  head->on_have(kSuccessorPeer, have);
  EXPECT_EQ(port.take(kSuccessorPeer), std::vector{FrameKind::kEvent});
}

}  // namespace
}  // namespace trireme::parallel::server_test
