// The service of rounds, request by request, without a network.
#include "trireme/comm/rounds/round_service.h"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/store/store_server.h"

namespace trireme::comm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using wire::Bytes;
using wire::FrameReader;
using wire::FrameWriter;
using wire::RoundBytes;
using wire::RoundReply;
using wire::RoundRequest;

constexpr int64_t kMessage = static_cast<int64_t>(RoundBytes::kMessage);
constexpr int64_t kState = static_cast<int64_t>(RoundBytes::kState);

class RoundServiceTest : public ::testing::Test {
 protected:
  // What the service answers: the reply's kind and its fields.
  struct Answer {
    RoundReply reply{};
    Bytes fields{};
    int64_t number() const { return FrameReader(fields).number(); }
  };
  Answer ask(FrameWriter& writer) {
    const Bytes& frame = writer.finish();
    const Bytes reply = service_.answer(std::span(frame).subspan(4));
    if (reply.size() < 5) return {};
    return {static_cast<RoundReply>(reply[4]), {reply.begin() + 5, reply.end()}};
  }
  Answer ask(RoundRequest request, int place, const std::vector<int64_t>& numbers,
             std::optional<Bytes> bytes = std::nullopt) {
    FrameWriter writer(static_cast<uint8_t>(request));
    writer.number(place).number(0).text(process(place));
    for (const int64_t number : numbers) writer.number(number);
    if (bytes) writer.bytes(*bytes);
    return ask(writer);
  }
  static std::string process(int place) { return "process of " + std::to_string(place); }
  wire::RoundWelcome enroll(int place, int64_t step) {
    FrameWriter writer(static_cast<uint8_t>(RoundRequest::kEnroll));
    wire::write_member(writer, {.place = place,
                                .num_places = 2,
                                .process = process(place),
                                .step = step,
                                .hash = std::to_string(step),
                                .last_step = 30});
    const Answer answer = ask(writer);
    FrameReader reader(answer.fields);
    return wire::read_welcome(reader).value_or(wire::RoundWelcome{});
  }
  Answer put(int place, int64_t what, int64_t step, int64_t size, int64_t offset, Bytes bytes) {
    return ask(RoundRequest::kPut, place, {what, step, size, offset}, std::move(bytes));
  }
  void send(int place, int64_t step, const Bytes& bytes) {
    EXPECT_EQ(put(place, kMessage, step, std::ssize(bytes), 0, bytes).number(), std::ssize(bytes));
  }
  RoundOutcome outcome(int place, int64_t step) {
    const Answer answer = ask(RoundRequest::kOutcome, place, {step});
    FrameReader reader(answer.fields);
    return wire::read_outcome(reader).value_or(RoundOutcome{.kind = RoundOutcome::Kind::kUnknown});
  }
  // The bytes, if they are there.
  std::optional<Bytes> get(int place, int64_t what, int64_t step, int from) {
    const Answer answer = ask(RoundRequest::kGet, place, {what, step, from, 0, 1000});
    if (answer.reply != RoundReply::kDone) return std::nullopt;
    FrameReader reader(answer.fields);
    reader.number();
    const auto bytes = reader.bytes();
    return Bytes(bytes.begin(), bytes.end());
  }

  RoundTable::Time now_{};
  RoundService service_{{.table = {.places = 2, .lease = std::chrono::milliseconds(1000)},
                         .memory_bytes = 1000,
                         .now = [this] { return now_; }}};
};

TEST_F(RoundServiceTest, MessagesOfARoundComeToAllInIt) {
  enroll(0, 0);
  EXPECT_EQ(enroll(1, 0).standing, RoundStanding::kIn);
  send(0, 10, {1, 2, 3});
  EXPECT_EQ(outcome(0, 10).kind, RoundOutcome::Kind::kOpen);
  EXPECT_FALSE(get(0, kMessage, 10, 0)) << "before the round is decided";
  send(1, 10, {4, 5, 6});
  EXPECT_THAT(outcome(0, 10).places, ElementsAre(0, 1));
  EXPECT_EQ(get(0, kMessage, 10, 1), (Bytes{4, 5, 6}));
  EXPECT_EQ(get(1, kMessage, 10, 0), (Bytes{1, 2, 3}));
  EXPECT_FALSE(get(1, kMessage, 20, 0));
  EXPECT_FALSE(get(1, kMessage, 10, 7));
  EXPECT_EQ(put(1, kMessage, 10, 1, 0, {1}).reply, RoundReply::kGone);
}

TEST_F(RoundServiceTest, AMessageMayComeInPiecesAndAgain) {
  enroll(0, 0);
  enroll(1, 0);
  EXPECT_EQ(put(0, kMessage, 10, 5, 0, {1, 2}).number(), 2);
  EXPECT_EQ(put(0, kMessage, 10, 5, 0, {1, 2}).number(), 2);  // its answer was lost
  EXPECT_EQ(put(0, kMessage, 10, 5, 4, {5}).number(), 2);
  EXPECT_EQ(put(0, kMessage, 10, 5, 2, {3, 4, 5}).number(), 5);
  send(1, 10, {6, 7, 8, 9, 10});
  EXPECT_EQ(get(1, kMessage, 10, 0), (Bytes{1, 2, 3, 4, 5}));
}

TEST_F(RoundServiceTest, OneThatIsBehindGetsTheStateOfTheDonor) {
  enroll(0, 10);
  now_ += std::chrono::milliseconds(600);
  enroll(0, 10);
  now_ += std::chrono::milliseconds(600);
  EXPECT_EQ(enroll(0, 10).standing, RoundStanding::kIn);
  EXPECT_EQ(enroll(1, 0).standing, RoundStanding::kBehind);
  send(0, 20, {1});
  EXPECT_EQ(outcome(0, 20).donor, 0);
  enroll(0, 20);
  EXPECT_EQ(enroll(1, 0).state, -1);
  EXPECT_EQ(put(1, kState, 20, 2, 0, {8, 9}).reply, RoundReply::kGone) << "it has not the weights";
  put(0, kState, 20, 2, 0, {8});
  EXPECT_EQ(enroll(1, 0).state, -1);
  EXPECT_FALSE(get(1, kState, 20, 0));
  put(0, kState, 20, 2, 1, {9});
  EXPECT_EQ(enroll(1, 0).state, 20);
  EXPECT_EQ(get(1, kState, 20, 0), (Bytes{8, 9}));
  EXPECT_EQ(enroll(1, 20).standing, RoundStanding::kIn);
}

TEST_F(RoundServiceTest, AMessageOfARoundThatWasUndoneIsAskedForAgain) {
  const auto pass_with = [&](int place) {
    now_ += std::chrono::milliseconds(600);
    return enroll(place, 10).standing;
  };
  enroll(0, 10);
  enroll(1, 10);
  pass_with(0);
  pass_with(0);  // without learner 1
  send(0, 20, {1});
  EXPECT_EQ(enroll(0, 10).head, 20);
  pass_with(1);
  EXPECT_EQ(pass_with(1), RoundStanding::kBehind);  // without learner 0
  pass_with(1);
  EXPECT_EQ(pass_with(1), RoundStanding::kIn);
  EXPECT_EQ(ask(RoundRequest::kOutcome, 0, {20}).reply, RoundReply::kGone);
  send(0, 20, {1});
  EXPECT_EQ(outcome(0, 20).kind, RoundOutcome::Kind::kOpen);
  send(1, 20, {2});
  EXPECT_THAT(outcome(0, 20).places, ElementsAre(0, 1));
  EXPECT_EQ(get(1, kMessage, 20, 0), Bytes{1});
}

TEST_F(RoundServiceTest, NobodyIsAwayBecauseTheServiceWasStopped) {
  enroll(0, 0);
  enroll(1, 0);
  send(0, 10, {1});
  now_ += std::chrono::hours(1);
  EXPECT_EQ(outcome(0, 10).kind, RoundOutcome::Kind::kOpen);
  now_ += std::chrono::milliseconds(600);
  EXPECT_THAT(outcome(0, 10).places, ElementsAre(0));
}

TEST_F(RoundServiceTest, AStrangerHasToEnroll) {
  EXPECT_EQ(ask(RoundRequest::kOutcome, 0, {10}).reply, RoundReply::kUnknown);
  enroll(0, 0);
  ask(RoundRequest::kLeave, 0, {});
  EXPECT_EQ(ask(RoundRequest::kOutcome, 0, {10}).reply, RoundReply::kUnknown);
}

TEST_F(RoundServiceTest, MemoryIsBounded) {
  enroll(0, 0);
  enroll(1, 0);
  EXPECT_EQ(put(0, kMessage, 10, 600, 0, {1}).reply, RoundReply::kDone);
  const Answer refused = put(1, kMessage, 10, 600, 0, {1});
  EXPECT_EQ(refused.reply, RoundReply::kRefused);
  EXPECT_THAT(FrameReader(refused.fields).text(), HasSubstr("raise its --memory"));
  EXPECT_EQ(put(1, kMessage, 10, INT64_MAX, 0, {1}).reply, RoundReply::kRefused);
}

TEST_F(RoundServiceTest, IsDoneWhenAllHaveFinished) {
  enroll(0, 20);
  enroll(1, 20);
  send(0, 30, {1});
  send(1, 30, {1});
  enroll(0, 30);
  ask(RoundRequest::kLeave, 0, {});
  enroll(1, 30);
  EXPECT_FALSE(service_.is_done());
  ask(RoundRequest::kLeave, 1, {});
  EXPECT_TRUE(service_.is_done());
}

TEST_F(RoundServiceTest, WhatNoLearnerSendsIsNoRequest) {
  enroll(0, 0);
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    FrameWriter writer(static_cast<uint8_t>(30 + random() % 8));
    writer.number(0).number(0).text(process(0));
    const size_t count = random() % 7;
    for (size_t j = 0; j < count; ++j) {
      constexpr int64_t kNumbers[] = {-1, 0, 1, 2, 10, INT64_MAX, INT64_MIN};
      random() % 4 == 0 ? writer.text("abc") : writer.number(kNumbers[random() % 7]);
    }
    Bytes frame = writer.finish();
    frame.resize(frame.size() - random() % 3);
    static_cast<void>(service_.answer(std::span(frame).subspan(std::min<size_t>(4, frame.size()))));
  }
  EXPECT_TRUE(service_.answer({}).empty());
  EXPECT_NE(enroll(1, 0).standing, RoundStanding::kUnknown);
}

TEST_F(RoundServiceTest, OtherHostsNeedAToken) {
  try {
    serve_rounds(service_, "0.0.0.0:29999", nullptr);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("there is no token"));
  }
}

}  // namespace
}  // namespace trireme::comm
