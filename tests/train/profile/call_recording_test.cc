#include "trireme/train/profile/span_recording.h"

#include <chrono>
#include <thread>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/clock.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::train {
namespace {

TEST(CallRecording, HasTheCallsIssuedSinceItBegan) {
  const auto recorder = std::make_shared<comm::Recorder>(comm::RecorderOptions{});
  const auto group = comm::make_thread_group(1, {.name = "data", .recorder = recorder});
  const at::Tensor tensor = at::zeros({3, 5}, at::kDouble);
  group[0]->all_reduce(tensor)->wait();
  const int64_t begin = monotonic_ns();
  CallRecording calls(recorder);
  group[0]->all_reduce(tensor)->wait();
  calls.collect();
  group[0]->broadcast(tensor, 0, {.background = true})->wait();
  calls.collect();
  calls.collect();
  group[0]->barrier()->wait();
  RankProfile profile;
  calls.move_to(profile);
  const int64_t end = monotonic_ns();

  ASSERT_EQ(profile.calls.size(), 3u);
  EXPECT_EQ(profile.num_lost_calls, 0u);
  EXPECT_EQ(profile.calls[0].operation, "all_reduce");
  EXPECT_EQ(profile.calls[0].bytes, 15 * 8);
  EXPECT_FALSE(profile.calls[0].is_background);
  EXPECT_EQ(profile.calls[1].operation, "broadcast");
  EXPECT_TRUE(profile.calls[1].is_background);
  EXPECT_EQ(profile.calls[1].sequence, profile.calls[0].sequence + 1);
  EXPECT_EQ(profile.calls[2].bytes, 0);
  EXPECT_EQ(profile.groups.at(profile.calls[0].group).name, "data");
  int64_t last = begin;
  for (const CallSpan& call : profile.calls) {
    EXPECT_LE(last, call.issued_ns);
    EXPECT_LE(call.issued_ns, call.time.begin_ns);
    EXPECT_LE(call.time.begin_ns, call.time.end_ns);
    last = call.issued_ns;
  }
  EXPECT_LE(profile.calls.back().time.end_ns, end);
}

TEST(CallRecording, ACallThatRunsOnIsTakenWhenItEnds) {
  const auto recorder = std::make_shared<comm::Recorder>(comm::RecorderOptions{});
  CallRecording calls(recorder);
  const auto entry = recorder->issue(-1, {.operation = "slow"});
  recorder->issue(-1, {.operation = "quick"}).finish(true);
  calls.collect();
  recorder->issue(-1, {.operation = "never"});
  entry.finish(true);
  RankProfile profile;
  calls.move_to(profile);
  ASSERT_EQ(profile.calls.size(), 2u);
  EXPECT_EQ(profile.calls[0].operation, "slow");
  EXPECT_EQ(profile.calls[1].operation, "quick");
  EXPECT_EQ(profile.num_lost_calls, 0u);
}

TEST(CallRecording, SaysHowManyTheRingHasForgotten) {
  const auto recorder = std::make_shared<comm::Recorder>(comm::RecorderOptions{.num_records = 8});
  const auto make_calls = [&](int count) {
    for (int i = 0; i < count; ++i) recorder->issue(-1, {.operation = "call"}).finish(true);
  };
  make_calls(5);
  CallRecording calls(recorder);
  make_calls(8);
  calls.collect();
  make_calls(20);
  RankProfile profile;
  calls.move_to(profile);
  EXPECT_EQ(profile.calls.size(), 16u);
  EXPECT_EQ(profile.num_lost_calls, 12u);
}

TEST(CallRecording, ACallOfAnotherThreadIsInTheBackground) {
  const auto recorder = std::make_shared<comm::Recorder>(comm::RecorderOptions{});
  CallRecording calls(recorder);
  std::thread([&] { recorder->issue(-1, {.operation = "theirs"}).finish(true); }).join();
  recorder->issue(-1, {.operation = "ours"}).finish(true);
  RankProfile profile;
  calls.move_to(profile);
  ASSERT_EQ(profile.calls.size(), 2u);
  EXPECT_TRUE(profile.calls[0].is_background);
  EXPECT_FALSE(profile.calls[1].is_background);
}

TEST(CallRecording, WithoutARecorderThereAreNone) {
  CallRecording calls(nullptr);
  calls.collect();
  RankProfile profile;
  calls.move_to(profile);
  EXPECT_TRUE(profile.calls.empty());
}

TEST(CallRecording, BytesAreThoseTheRanksAgreeOnOrOfTheTensor) {
  comm::Record record;
  EXPECT_EQ(bytes_of(record), 0);
  record.dtype = static_cast<int>(at::kFloat);
  record.elements = 10;
  EXPECT_EQ(bytes_of(record), 40);
  record.elements = -1;
  record.shape = {2, 3};
  record.num_dims = 2;
  EXPECT_EQ(bytes_of(record), 24);
  record.shape = {2, 3, 4, 5};
  record.num_dims = 5;  // of which the ring keeps four
  EXPECT_EQ(bytes_of(record), 0);
}

}  // namespace
}  // namespace trireme::train
