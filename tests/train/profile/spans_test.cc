#include "trireme/train/profile/spans.h"

#include <gtest/gtest.h>

#include "tests/train/profile/synthetic.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(RankProfile, ArrivesAsItWasSent) {
  RankProfile sent = one_step(3, 1000);
  sent.host = "here";
  sent.num_lost_calls = 7;
  sent.operators = {{"aten::mm", {1, 2}, 0, -1, 12}, {"\"quoted\" \xff", {3, 4}, 2, 1, 0}};
  sent.calls = {{"all_reduce", 0, 9, 64, 5, {6, 8}, true, false, 2, 11}};
  sent.pipeline_rank = 1;
  sent.pipeline_runs.resize(2);
  sent.pipeline_runs[1].begin += std::chrono::nanoseconds(17);
  sent.pipeline_runs[1].waiting = std::chrono::nanoseconds(5);
  sent.pipeline_runs[1].bytes_sent = 6;
  sent.pipeline_runs[1].actions = {{{parallel::ActionKind::kBackward, 2, 3}, 0.25, 0.5}};
  sent.groups = {{"data", {1, 3}}};
  const RankProfile found = rank_profile_of(to_bytes(sent));
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.host, "here");
  EXPECT_EQ(found.num_lost_calls, 7u);
  ASSERT_EQ(found.steps.size(), 1u);
  EXPECT_EQ(found.steps[0].step, sent.steps[0].step);
  EXPECT_EQ(found.steps[0].time, sent.steps[0].time);
  ASSERT_EQ(found.phases.size(), sent.phases.size());
  EXPECT_EQ(found.phases[1].phase, sent.phases[1].phase);
  EXPECT_EQ(found.phases[1].time, sent.phases[1].time);
  ASSERT_EQ(found.operators.size(), 2u);
  EXPECT_EQ(found.operators[0].flops, 12);
  EXPECT_EQ(found.operators[1].name, sent.operators[1].name);
  EXPECT_EQ(found.operators[1].device, 1);
  EXPECT_EQ(found.groups, sent.groups);
  ASSERT_EQ(found.calls.size(), 1u);
  EXPECT_EQ(found.calls[0].sequence, 9u);
  EXPECT_EQ(found.calls[0].time, (Span{6, 8}));
  EXPECT_TRUE(found.calls[0].is_background);
  EXPECT_EQ(found.calls[0].peer, 2);
  EXPECT_EQ(found.calls[0].tag, 11);
  EXPECT_EQ(found.pipeline_rank, 1);
  ASSERT_EQ(found.pipeline_runs.size(), 2u);
  const parallel::PipelineProfile& run = found.pipeline_runs[1];
  EXPECT_EQ(run.begin, sent.pipeline_runs[1].begin);
  EXPECT_EQ(run.waiting.count(), 5);
  EXPECT_EQ(run.bytes_sent, 6);
  ASSERT_EQ(run.actions.size(), 1u);
  EXPECT_EQ(run.actions[0].action, (parallel::Action{parallel::ActionKind::kBackward, 2, 3}));
  EXPECT_EQ(run.actions[0].start, 0.25);
  EXPECT_EQ(run.actions[0].end, 0.5);
}

TEST(RankProfile, OtherBytesAreRefused) {
  EXPECT_THROW(rank_profile_of("nothing of the kind"), InternalError);
  const std::string whole = to_bytes(one_step(0, 10));
  EXPECT_THROW(rank_profile_of(whole.substr(0, whole.size() - 1)), InternalError);
}

TEST(RankProfile, ShiftMovesEveryTime) {
  RankProfile profile = one_step(0, 1000);
  profile.operators = {{"aten::mm", {10, 20}}};
  profile.calls = {{"send", -1, 1, 0, 30, {40, 50}}};
  profile.pipeline_runs.resize(1);
  shift(profile, -5);
  EXPECT_EQ(profile.pipeline_runs[0].begin.time_since_epoch().count(), -5);
  EXPECT_EQ(profile.steps[0].time, (Span{-5, 995}));
  EXPECT_EQ(profile.phases[0].time.begin_ns, -5);
  EXPECT_EQ(profile.operators[0].time, (Span{5, 15}));
  EXPECT_EQ(profile.calls[0].time, (Span{35, 45}));
  EXPECT_EQ(profile.calls[0].issued_ns, 25);
}

TEST(Phase, HasAName) {
  EXPECT_STREQ(name_of(Phase::kData), "data");
  EXPECT_STREQ(name_of(Phase::kExchange), "exchange");
}

}  // namespace
}  // namespace trireme::train
