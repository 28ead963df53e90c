#include "trireme/train/parallel/overlap_choice.h"

#include <limits>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/comm/shared/thread_group.h"

namespace trireme::train {
namespace {

using Times = std::vector<CommunicationTimes>;

TEST(HiddenShare, IsThePartOfAllCommunicationThatNobodyWaitedFor) {
  EXPECT_DOUBLE_EQ(hidden_share(Times{{.under_way = 4, .waiting = 1}}).value(), 0.75);
  EXPECT_DOUBLE_EQ(hidden_share(Times{{4, 1}, {4, 3}}).value(), 0.5);
  // A rank that waits longer than its calls take hides nothing, and takes nothing from others.
  EXPECT_DOUBLE_EQ(hidden_share(Times{{4, 1}, {4, 9}}).value(), 0.375);
}

TEST(HiddenShare, IsNotKnownWhereARankDoesNotKnowItsCalls) {
  EXPECT_FALSE(hidden_share(Times{{4, 1}, {-1, 0}}));
  EXPECT_FALSE(hidden_share(Times{{0, 0}}));
  EXPECT_FALSE(hidden_share({}));
}

TEST(SecondsUnderWay, AreThoseOfTheGroupWithinTheWindow) {
  RankProfile calls;
  calls.groups = {{"tensor", {0, 1}}, {"data", {0, 2}}};
  calls.calls = {{.operation = "all_reduce", .group = 0, .time = {0, 200}},
                 {.operation = "all_gather", .group = 0, .issued_ns = 120, .time = {220, 400}},
                 {.operation = "all_reduce", .group = 1, .issued_ns = 400, .time = {400, 900}},
                 {.operation = "all_reduce", .group = 0, .issued_ns = 950, .time = {990, 1500}},
                 {.operation = "all_reduce", .group = -1, .issued_ns = 400, .time = {400, 900}}};
  const Span window{100, 1000};
  EXPECT_DOUBLE_EQ(seconds_under_way(calls, window, "tensor", 2), 350e-9);
  EXPECT_LT(seconds_under_way(calls, window, "tensor", 4), 0);  // the part within a host
  EXPECT_LT(seconds_under_way(calls, window, "context", 2), 0);
  calls.num_lost_calls = 1;
  EXPECT_LT(seconds_under_way(calls, window, "tensor", 2), 0);
}

TEST(HiddenCommunication, AddsUpTheCallsBetweenBeginAndEnd) {
  const auto recorder = std::make_shared<comm::Recorder>(comm::RecorderOptions{});
  const auto groups = comm::make_thread_group(1, {.name = "tensor", .recorder = recorder});
  const auto call = [&] { groups[0]->all_reduce(at::ones({64}))->wait(); };
  const Span always{0, std::numeric_limits<int64_t>::max()};
  HiddenCommunication hidden(recorder, "tensor", 1);
  call();
  EXPECT_EQ(hidden.times().under_way, 0);
  hidden.begin();
  call();
  hidden.end(always, std::chrono::milliseconds(2));
  const double once = hidden.times().under_way;
  EXPECT_GT(once, 0);
  EXPECT_DOUBLE_EQ(hidden.times().waiting, 2e-3);
  call();  // nobody asked
  hidden.begin();
  hidden.end(always, std::chrono::milliseconds(1));
  EXPECT_EQ(hidden.times().under_way, once);
  EXPECT_DOUBLE_EQ(hidden.times().waiting, 3e-3);
}

TEST(HiddenCommunication, WithoutARecorderKnowsNothing) {
  HiddenCommunication hidden(nullptr, "tensor", 2);
  hidden.begin();
  hidden.end({0, 1000}, std::chrono::milliseconds(2));
  EXPECT_LT(hidden.times().under_way, 0);
}

}  // namespace
}  // namespace trireme::train
