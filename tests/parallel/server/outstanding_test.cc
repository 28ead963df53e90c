#include "trireme/parallel/server/worker_link.h"

#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

Outstanding request(FrameKind kind, uint32_t shard, uint32_t piece, int64_t step) {
  Outstanding made;
  made.frame.header = {.kind = kind,
                       .part = static_cast<uint16_t>(kind == FrameKind::kEvent ? 3 : 0),
                       .shard = shard,
                       .piece = piece,
                       .step = step};
  made.on_answer = [](const Frame&) {};
  return made;
}

View view_of(uint32_t number, std::vector<std::vector<uint32_t>> chains) {
  return {.number = number, .servers = {}, .workers = {}, .chains = std::move(chains)};
}

TEST(OutstandingRequests, AreSentOnceAndAgainWhenTheirChainChanges) {
  OutstandingRequests requests;
  int sent = 0;
  const auto send = [&](const Frame&) { ++sent; };
  const auto all = [](uint32_t) { return true; };
  requests.install(view_of(1, {{0, 1}, {1, 0}}));
  requests.add(request(FrameKind::kEvent, 0, 5, 1));
  requests.add(request(FrameKind::kPull, 1, 6, 1));
  EXPECT_EQ(requests.send_due([](uint32_t shard) { return shard == 0; }, send), 0);
  EXPECT_EQ(sent, 1);
  EXPECT_EQ(requests.send_due(all, send), 0);
  EXPECT_EQ(requests.send_due(all, send), 0);
  EXPECT_EQ(sent, 2);
  requests.install(view_of(2, {{0, 1}, {1, 0}}));
  EXPECT_EQ(requests.send_due(all, send), 0) << "somebody came or went elsewhere";
  requests.install(view_of(3, {{0}, {1, 0}}));
  EXPECT_EQ(requests.send_due(all, send), 1);
  EXPECT_EQ(sent, 3);
}

// The first one's answer may come while the second is written.
TEST(OutstandingRequests, AreSentAgainFromACopy) {
  OutstandingRequests requests;
  requests.install(view_of(1, {{0, 1}}));
  const at::Tensor gradient = at::ones({4});
  Outstanding push = request(FrameKind::kEvent, 0, 5, 1);
  push.frame.payload = bytes_of(gradient);
  requests.add(std::move(push));
  std::vector<at::Tensor> sent;
  const auto send_all = [&] {
    requests.send_due([](uint32_t) { return true; },
                      [&](const Frame& frame) { sent.push_back(frame.payload); });
  };
  send_all();
  requests.install(view_of(2, {{0}}));
  send_all();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_TRUE(at::equal(sent[0], sent[1]));
  EXPECT_EQ(sent[0].const_data_ptr(), gradient.const_data_ptr());
  EXPECT_NE(sent[1].const_data_ptr(), gradient.const_data_ptr());
}

TEST(OutstandingRequests, AnAnswerEndsItsRequestOnly) {
  OutstandingRequests requests;
  requests.install(view_of(1, {{0}}));
  requests.add(request(FrameKind::kEvent, 0, 5, 1));
  requests.add(request(FrameKind::kEvent, 0, 5, 2));
  requests.add(request(FrameKind::kPull, 0, 5, 2));
  Frame done;
  done.header = {.kind = FrameKind::kDone, .part = 3, .shard = 0, .piece = 5, .step = 2};
  EXPECT_TRUE(requests.take(done));
  EXPECT_FALSE(requests.take(done)) << "a second tail answers too";
  done.header.kind = FrameKind::kWeights;
  done.header.part = 0;
  EXPECT_TRUE(requests.take(done));
  int sent = 0;
  requests.send_due([](uint32_t) { return true; },
                    [&](const Frame& frame) {
                      ++sent;
                      EXPECT_EQ(frame.header.step, 1);
                    });
  EXPECT_EQ(sent, 1);
}

// A tail answers the newest connection of a worker's number.
TEST(OutstandingRequests, AnAnswerToAnEarlierIncarnationIsNone) {
  OutstandingRequests requests;
  requests.install(view_of(1, {{0}}));
  Outstanding push = request(FrameKind::kEvent, 0, 5, 1);
  push.frame.header.incarnation = 2;
  requests.add(std::move(push));
  Frame done;
  done.header = {
      .kind = FrameKind::kDone, .part = 3, .shard = 0, .incarnation = 1, .piece = 5, .step = 1};
  EXPECT_FALSE(requests.take(done));
  done.header.incarnation = 2;
  EXPECT_TRUE(requests.take(done));
}

}  // namespace
}  // namespace trireme::parallel
