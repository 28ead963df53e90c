#include "trireme/comm/recorder/group_recorder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

TEST(GroupRecorder, WithoutARecorderRecordsNothing) {
  const GroupRecorder none;
  none.issue({"barrier"}, {}, {}).finish(true);
  none.issue_message({"send"}, 1, {3}, {.background = true}).finish(true);
  EXPECT_EQ(none.join([] { return 7; }), 7);
  EXPECT_EQ(none.split("part", {0, 5}).recorder(), nullptr);
}

TEST(GroupRecorder, KeepsWhatACallSays) {
  const auto recorder = std::make_shared<Recorder>(RecorderOptions{});
  const GroupRecorder group(recorder, "world", 2);
  const at::Tensor data = at::ones({2, 3}, at::kInt);
  const Call call{"reduce", static_cast<int>(at::kInt), static_cast<int>(ReduceOp::kMax), 1, 6};
  group.issue(call, data, {.tag = 3}).finish(true);
  group.issue({"barrier"}, {}, {.background = true});
  group.issue_message({"send", static_cast<int>(at::kInt), -1, -1, 6}, 1, data.sizes(),
                      {.tag = 5, .background = true});
  const Ring ring = recorder->snapshot();
  ASSERT_EQ(ring.records.size(), 3u);
  EXPECT_EQ(ring.records[0].operation, "reduce");
  EXPECT_EQ(ring.records[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(ring.records[0].elements, 6);
  EXPECT_EQ(ring.records[0].peer, 1);
  EXPECT_EQ(ring.records[0].tag, 3);
  EXPECT_EQ(ring.records[0].state, CallState::kDone);
  EXPECT_EQ(ring.records[1].dtype, -1);
  EXPECT_EQ(ring.records[1].state, CallState::kIssued) << "it waits for those before it";
  EXPECT_TRUE(ring.records[2].is_point_to_point);
  EXPECT_EQ(ring.records[2].peer, 1);
  EXPECT_EQ(ring.records[2].state, CallState::kStarted) << "messages wait for nobody";
}

TEST(GroupRecorder, SubGroupsNameTheWorldsRanks) {
  const auto recorder = std::make_shared<Recorder>(RecorderOptions{.world_size = 20});
  const GroupRecorder group(recorder, "host", 4, {10, 11, 12, 13});
  group.split("pair", {3, 1}).split("alone", {1});
  const Ring ring = recorder->snapshot();
  ASSERT_EQ(ring.groups.size(), 3u);
  EXPECT_EQ(ring.groups[0].world_ranks, (std::vector<int>{10, 11, 12, 13}));
  EXPECT_EQ(ring.groups[1].world_ranks, (std::vector<int>{13, 11}));
  EXPECT_EQ(ring.groups[2].world_ranks, (std::vector<int>{11}));
  EXPECT_EQ(ring.groups[2].name, "alone");
}

TEST(GroupRecorder, WritesDownHowACallEnds) {
  const auto recorder = std::make_shared<Recorder>(RecorderOptions{});
  const GroupRecorder group(recorder, "world", 1);
  const auto fails = [] { throw Error("no"); };
  EXPECT_EQ(group.join([] { return 7; }), 7);
  EXPECT_THROW(group.join(fails), Error);
  const auto waiting = group.issue({"barrier"}, {}, {.background = true});
  EXPECT_EQ(recorder->snapshot().records.back().state, CallState::kIssued);
  waiting.start();
  run_recorded(waiting,
               [&] { EXPECT_EQ(recorder->snapshot().records.back().state, CallState::kStarted); });
  EXPECT_THROW(run_recorded(group.issue({"broadcast"}, {}, {}), fails), Error);
  const auto begun = group.issue({"send"}, {}, {});
  EXPECT_EQ(run_or_fail(begun, [] { return 8; }), 8);
  std::vector<CallState> states;
  for (const Record& record : recorder->snapshot().records) states.push_back(record.state);
  EXPECT_EQ(states, (std::vector{CallState::kDone, CallState::kFailed, CallState::kDone,
                                 CallState::kFailed, CallState::kStarted}));
  EXPECT_THROW(run_or_fail(begun, fails), Error);
  EXPECT_EQ(recorder->snapshot().records.back().state, CallState::kFailed);
}

}  // namespace
}  // namespace trireme::comm
